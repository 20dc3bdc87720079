"""Noise inside classes: (k,ε)-anonymity. Loaded where a policy asks for it.

Source: N. Holohan, S. Antonatos, S. Braghin, P. Mac Aonghusa, "(k,ε)-Anonymity: k-anonymity with ε-differential
privacy" (2017).
"""
