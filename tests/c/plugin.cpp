// A shared library with call sites of its own.
#include "forms.hpp"

extern "C" void plugin_entry(int id)
{
    LOOPSCOPE_EVENT("plugin", "entered", id);
    in_inline(100 + id);
}
