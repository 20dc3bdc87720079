"""Noise inside classes: (k,ε)-anonymity.

Source: N. Holohan, S. Antonatos, S. Braghin, P. Mac Aonghusa, "(k,ε)-Anonymity: k-anonymity with ε-differential
privacy" (2017).
"""

from sqlanon.noise.columns import columns_for_noise
from sqlanon.noise.laplace import refuse_without_opendp
from sqlanon.noise.stage import Noised, Told, add_noise

__all__ = ["Noised", "Told", "add_noise", "columns_for_noise", "refuse_without_opendp"]
