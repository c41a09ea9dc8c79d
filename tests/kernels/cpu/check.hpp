// What the test programs here have in common: a check that says where it failed, and goes on.
#pragma once

#include <cstdio>

inline int failures = 0;

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition) && ++failures <= 20)                                   \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    } while (0)
