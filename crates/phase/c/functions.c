/* Programs that are tables of functions. Describes itself in include/loopscope/phase.h. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "phases.h"

static const char configure[] = "configure";

static int call(struct loopscope_phases *p, const struct loopscope_phase_function *row, void *data)
{
    char error[128];
    int result = row->function(p, data);

    if (p->ended)
        return -1;
    if (result == 0)
        return 0;
    snprintf(error, sizeof error, "the function of %s returned %d", row->phase, result);
    loopscope_phase_failed(p, error);
    return -1;
}

static int run_configure(struct loopscope_phases *p, const struct loopscope_phase_function *table,
                         void *data)
{
    int result = 0;

    p->configuring = true;
    for (; table->phase != NULL && result == 0; table++)
        if (strcmp(table->phase, configure) == 0)
            result = call(p, table, data);
    p->configuring = false;
    return result;
}

static int run_phases(struct loopscope_phases *p, const struct loopscope_phase_function *table,
                      void *data)
{
    const char *phase;
    int more;

    while ((more = loopscope_phase_next(p, &phase)) == 1) {
        const struct loopscope_phase_function *row = table;
        while (strcmp(row->phase, phase) != 0)
            row++;
        if (call(p, row, data) != 0)
            return -1;
        /* A function may have ended its phase itself. */
        if (p->current < p->count && loopscope_phase_done(p) != 0)
            return -1;
    }
    return more;
}

int loopscope_phase_run(const struct loopscope_phase_function *table, void *data, int argc,
                        char *const *argv)
{
    struct loopscope_phases *p = NULL;
    const char **names;
    size_t rows = 0, count = 0;
    int result = -1;

    while (table[rows].phase != NULL)
        rows++;
    names = calloc(rows + 1, sizeof *names);
    if (names != NULL) {
        for (size_t i = 0; i < rows; i++)
            if (strcmp(table[i].phase, configure) != 0)
                names[count++] = table[i].phase;
        result = open_session(&p, names, argc, argv);
        if (result == 0)
            result = run_configure(p, table, data);
        if (result == 0)
            result = say_hello(p);
        if (result == 0)
            result = run_phases(p, table, data);
    }
    if (result != 0)
        fprintf(stderr, "%s\n", loopscope_phase_error(p));
    loopscope_phase_close(p);
    free(names);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
