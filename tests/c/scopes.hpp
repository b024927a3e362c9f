// Call sites in templates and inline functions that two translation units share.
#pragma once

#include <string>

#include "loopscope/trace.h"

template <typename T> T scoped(T value)
{
    LOOPSCOPE_SCOPE("scopes", "template", value);
    LOOPSCOPE_HISTOGRAM_RANGE("scopes", "sizes", 0, 4 * sizeof(long), 8);
    LOOPSCOPE_HISTOGRAM_ADD("scopes", "sizes", sizeof(T));
    return value;
}

inline std::string text_of(int id)
{
    LOOPSCOPE_DESCRIBE("scopes", "inlined", "ns", "In a function that is inline.");
    LOOPSCOPE_SCOPE("scopes", "inlined", id);
    LOOPSCOPE_COUNTER_ADD("scopes", "calls", 1);
    return std::string(100, char('a' + id));
}

void other_unit();
