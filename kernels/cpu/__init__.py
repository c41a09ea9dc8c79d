"""Native kernels for CPUs: C++ compiled for several kinds of processor, one of which is chosen at run time."""
