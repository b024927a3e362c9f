// Call sites that several translation units share.
#pragma once

#include <cstdint>

#include "loopscope/trace.h"

inline void in_inline(std::int64_t id)
{
    LOOPSCOPE_EVENT("forms", "inlined", id);
}

template <typename T> struct Value {
    T value;
    void emit(std::int64_t id) const
    {
        LOOPSCOPE_EVENT("forms", "template", id, LOOPSCOPE_F64(value, double(value)),
                        LOOPSCOPE_U32(size, sizeof(T)));
    }
};

template <typename A, typename B> A first(A a, B)
{
    return a;
}

struct AtStart {
    explicit AtStart(std::int64_t id)
    {
        LOOPSCOPE_EVENT("forms", "constructor", id);
    }
};

void other_unit();
