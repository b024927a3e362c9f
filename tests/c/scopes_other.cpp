// The second translation unit.
#include "scopes.hpp"

// Follows inline functions whose copies here are dropped for those of the first unit.
LOOPSCOPE_DESCRIBE("scopes", "other", "", "Of the second unit.");

void other_unit()
{
    scoped(6);
    text_of(7);
}
