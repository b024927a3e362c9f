// Every form of the C header in C++17, and a plugin that is loaded and unloaded three times.
#include <dlfcn.h>

#include <cstdio>

#include "forms.hpp"

static AtStart at_start(1);

namespace {
void in_anonymous_namespace(std::int64_t id)
{
    LOOPSCOPE_EVENT("forms", "plain", id);
}
} // namespace

int main(int argc, char **argv)
{
    in_anonymous_namespace(1);
    in_inline(1);
    Value<float>{0.5f}.emit(1);
    Value<int>{-3}.emit(2);
    auto lambda = [](std::int64_t id) {
        LOOPSCOPE_EVENT("forms", "lambda", id, LOOPSCOPE_I64(twice, 2 * id));
    };
    lambda(1);
    lambda(2);
    auto generic = [](auto value) {
        LOOPSCOPE_EVENT("forms", "generic", value,
                        LOOPSCOPE_I32(value, first<int, long>(int(value), 0L)));
    };
    generic(3);
    generic(static_cast<short>(4));
    other_unit();
    for (int i = 0; argc > 1 && i < 3; i++) {
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!plugin) {
            std::fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        reinterpret_cast<void (*)(int)>(dlsym(plugin, "plugin_entry"))(i);
        dlclose(plugin);
    }
    return 0;
}
