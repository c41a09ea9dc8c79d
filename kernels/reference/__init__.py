"""The reference backend: plain torch on a CPU, written to be exact first and decently fast second.

It keeps the row rule of `radixrt.kernels.interface` by construction where torch leaves room for doubt: every matrix
product has one fixed shape (a tile of rows, a block of keys), and only operations that yield the same bits wherever an
element lies are used around it.
"""
