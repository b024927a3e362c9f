// The second translation unit of the C++ program.
#include "forms.hpp"

void other_unit()
{
    in_inline(2);
    Value<float>{1.5f}.emit(3);
    Value<long>{9}.emit(4);
}
