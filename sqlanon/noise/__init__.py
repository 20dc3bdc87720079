"""Noise inside classes: (k,ε)-anonymity. Imported only for policies with noise.

Source: N. Holohan, S. Antonatos, S. Braghin, P. Mac Aonghusa, "(k,ε)-Anonymity: k-anonymity with ε-differential
privacy" (2017).
"""
