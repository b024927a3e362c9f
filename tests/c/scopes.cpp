// What the header has for C++ alone, and its entities in C++'s kinds of functions. Prints how often
// values of disabled scopes were evaluated.
#define LOOPSCOPE_SHORT_NAMES
#include "scopes.hpp"

#include <cstdio>
#include <stdexcept>

namespace {
LOOPSCOPE_HISTOGRAM_RANGE("scopes", "namespaced", -5, 5, 10);

std::int64_t evaluated;

void fail(int id)
{
    LOOPSCOPE_SCOPE("scopes", "thrown", id);
    throw std::runtime_error("left by an exception");
}

int several(int id)
{
    LOOPSCOPE_SCOPE("scopes", "outer", ++evaluated);
    LOOPSCOPE_SCOPE("scopes", "inner", ++evaluated);
    SCOPE_OVER("scopes", "short", ++evaluated, 3600000000000u);
    SCOPE_OVER("scopes", "long", ++evaluated, 0);
    LOOPSCOPE_EVENT("scopes", "inside", id);
    if (id == 2)
        return id;
    return -id;
}
} // namespace

int main()
{
    for (int i = 0; i < 2; i++) {
        LOOPSCOPE_SCOPE("off", "scope", ++evaluated);
        SCOPE_OVER("off", "scope", ++evaluated, std::uint64_t(++evaluated));
    }
    std::printf("%lld\n", (long long)evaluated);
    several(1);
    several(2);
    try {
        fail(3);
    } catch (const std::runtime_error &) {
        LOOPSCOPE_EVENT("scopes", "caught", 3);
    }
    scoped(4);
    scoped('\5');
    other_unit();
    // A temporary lives until the event is recorded.
    LOOPSCOPE_EVENT("scopes", "temporary", 8, LOOPSCOPE_STRING(a, text_of(0).c_str()),
                    LOOPSCOPE_BYTES(b, text_of(1).data(), 3), LOOPSCOPE_U8(c, 9));
    auto lambda = [](auto id) {
        SCOPE("scopes", "lambda", id);
        COUNTER_LOG("scopes", "calls");
        HISTOGRAM_LOG("scopes", "sizes");
    };
    lambda(10);
    HISTOGRAM_ADD("scopes", "namespaced", -5);
    HISTOGRAM_LOG("scopes", "namespaced");
    return 0;
}
