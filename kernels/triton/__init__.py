"""Kernels in Triton, for GPUs of NVIDIA and AMD, and for Triton's interpreter where there is none.

Modules named `*_kernels` hold what runs on the device; each is imported by the module beside it that launches it, and
none before a backend is loaded. Matrix products are the device library's own (cuBLAS, hipBLAS) through torch.
"""
