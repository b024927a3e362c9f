/* stm: does everything that loopscope/stm.h has, and says where something is not as it has to be.
 * C99 and C++11 alike.
 *
 * stm SOCKET: makes channel `frames`, with the defaults and items of 64 bytes; leaves items 1 to 4
 * in it. What stands for them comes from standard input, a line for each; then it waits for its end.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <loopscope/stm.h>

#define IS(result, call) is(__LINE__, #call, (call), (result))

static void is(int line, const char *call, int result, int wanted)
{
    if (result == wanted)
        return;
    fprintf(stderr, "stm.c:%d: %s is %d: %s\n", line, call, result, loopscope_stm_error());
    exit(1);
}

static void holds(int line, const char *what, int is_so)
{
    if (is_so)
        return;
    fprintf(stderr, "stm.c:%d: not so: %s\n", line, what);
    exit(1);
}

#define HOLDS(what) holds(__LINE__, #what, (what))

static void count_slip(const struct loopscope_stm_turn *turn, void *slips)
{
    HOLDS(turn->slipped);
    ++*(int *)slips;
}

/* Turns of 2 ms; one that is away for longer leaves some out. */
static void turns(void)
{
    struct loopscope_stm_pace *pace;
    struct loopscope_stm_turn first, turn;
    const struct timespec away = {0, 7000000};
    int slips = 0, slipped = 0;
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_pace(0, 0, false, NULL, NULL, &pace));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_pace(2000000, 1000000, true, count_slip, &slips, &pace));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_turn(pace, &first));
    HOLDS(first.number == 0);
    slipped += first.slipped;
    IS(LOOPSCOPE_STM_OK, loopscope_stm_turn(pace, &turn));
    HOLDS(turn.due_ns == first.due_ns + (int64_t)turn.number * 2000000);
    slipped += turn.slipped;
    nanosleep(&away, NULL);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_turn(pace, &turn));
    HOLDS(turn.skipped >= 2 && turn.slipped);
    HOLDS(slips == slipped + 1);
    loopscope_stm_pace_end(pace);
    loopscope_stm_pace_end(NULL);
}

/* Carries the promise of a channel's producer on to another channel. */
static void derived(struct loopscope_stm_service *service)
{
    struct loopscope_stm_options options;
    struct loopscope_stm_channel *frames, *poses;
    struct loopscope_stm_output *camera, *tracker;
    struct loopscope_stm_input *of_frames, *of_poses;
    struct loopscope_stm_item item;
    memset(&options, 0, sizeof options);
    options.item_bytes = 8;
    IS(LOOPSCOPE_STM_OK, loopscope_stm_create(service, "from", &options, &frames));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_create(service, "to", &options, &poses));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_output(frames, &camera));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_output(poses, &tracker));
    IS(LOOPSCOPE_STM_OK,
       loopscope_stm_input(frames, LOOPSCOPE_STM_FROM_OLDEST, 0, false, 1, &of_frames));
    IS(LOOPSCOPE_STM_OK,
       loopscope_stm_input(poses, LOOPSCOPE_STM_FROM_OLDEST, 0, false, 1, &of_poses));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_put(camera, 3, 0, NULL, 0, 0));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_bound(camera, 5));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_derives(tracker, NULL));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_derives(tracker, of_frames));
    IS(LOOPSCOPE_STM_NEVER, loopscope_stm_get(of_poses, 2, 0, &item));
    IS(LOOPSCOPE_STM_NOT_YET, loopscope_stm_get(of_poses, 3, 0, &item));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_consume(of_frames, 3));
    IS(LOOPSCOPE_STM_NEVER, loopscope_stm_get(of_poses, 4, 0, &item));
    IS(LOOPSCOPE_STM_LATE, loopscope_stm_put(tracker, 4, 0, NULL, 0, 0));
    /* What was put before the first question is not told. */
    int64_t times[2];
    size_t count = 9;
    IS(LOOPSCOPE_STM_OK, loopscope_stm_collected(camera, NULL, 0, &count));
    IS(0, (int)count);
    for (int64_t time = 5; time < 8; time++)
        IS(LOOPSCOPE_STM_OK, loopscope_stm_put(camera, time, 0, NULL, 0, 0));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_consume_until(of_frames, 7));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_collected(camera, times, 2, &count));
    IS(2, (int)count);
    IS(5, (int)times[0]);
    IS(6, (int)times[1]);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_collected(camera, times, 2, &count));
    IS(1, (int)count);
    IS(7, (int)times[0]);
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_collected(camera, times, 2, NULL));
    loopscope_stm_input_leave(of_poses);
    loopscope_stm_input_leave(of_frames);
    loopscope_stm_output_leave(tracker);
    loopscope_stm_output_leave(camera);
    loopscope_stm_close(poses);
    loopscope_stm_close(frames);
}

/* What a full channel of two does, and whom it drops for. */
static void small_channel(struct loopscope_stm_service *service)
{
    struct loopscope_stm_options options;
    struct loopscope_stm_channel *channel;
    struct loopscope_stm_output *out;
    struct loopscope_stm_input *in;
    struct loopscope_stm_input_counts counts;
    struct loopscope_stm_item item;
    memset(&options, 0, sizeof options);
    options.item_bytes = 8;
    options.capacity = 2;
    options.orphans = LOOPSCOPE_STM_DISCARD;
    IS(LOOPSCOPE_STM_OK, loopscope_stm_create(service, "small", &options, &channel));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_output(channel, &out));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_put(out, 1, 0, NULL, 0, 0));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_input(channel, LOOPSCOPE_STM_FROM_NEXT, 0, false, 2, &in));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_put(out, 2, 0, "two", 3, 0));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_put(out, 3, 0, "three", 5, 0));
    IS(LOOPSCOPE_STM_FULL, loopscope_stm_put(out, 4, 0, "four", 4, 1000000));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_consume(in, 3));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_put(out, 4, 0, "four", 4, 1000000));
    IS(LOOPSCOPE_STM_GONE, loopscope_stm_get(in, 3, 0, &item));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_input_count(in, &counts));
    HOLDS(counts.floor == 2 && counts.lost == 0 && counts.held == 0 && counts.skipped == 0);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_unseen(in, LOOPSCOPE_STM_FOREVER, &item));
    HOLDS(item.time == 4 && item.length == 4 && memcmp(item.bytes, "four", 4) == 0);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_input_count(in, &counts));
    HOLDS(counts.floor == 4 && counts.held == 1 && counts.skipped == 1);
    IS(LOOPSCOPE_STM_NOT_YET, loopscope_stm_unseen(in, 0, &item));
    loopscope_stm_release(&item);
    loopscope_stm_input_leave(in);
    options.full = LOOPSCOPE_STM_DROP;
    IS(LOOPSCOPE_STM_FAILED, loopscope_stm_create(service, "small", &options, &channel));
    HOLDS(strstr(loopscope_stm_error(), "with other options") != NULL);
    loopscope_stm_output_leave(out);
    loopscope_stm_close(channel);
}

/* What cannot be. */
static void mistakes(struct loopscope_stm_service *service, struct loopscope_stm_channel *channel)
{
    struct loopscope_stm_options options;
    struct loopscope_stm_channel *none;
    struct loopscope_stm_input *in;
    memset(&options, 0, sizeof options);
    IS(LOOPSCOPE_STM_FAILED, loopscope_stm_create(service, "none", &options, &none));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_create(service, NULL, &options, &none));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_create(service, "none", NULL, &none));
    HOLDS(strcmp(loopscope_stm_error(), "NULL is given for the options") == 0);
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_create(service, "none", &options, NULL));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_create(NULL, "none", &options, &none));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_open(service, "\xff", true, &none));
    IS(LOOPSCOPE_STM_FAILED, loopscope_stm_open(service, "nobody", true, &none));
    HOLDS(strstr(loopscope_stm_error(), "there is no channel nobody") != NULL);
    IS(LOOPSCOPE_STM_INVALID,
       loopscope_stm_input(channel, (enum loopscope_stm_start)4, 0, false, 1, &in));
    IS(LOOPSCOPE_STM_INVALID,
       loopscope_stm_input(NULL, LOOPSCOPE_STM_FROM_OLDEST, 0, false, 1, &in));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_count(channel, NULL));
    HOLDS(loopscope_stm_item_bytes(NULL) == 0);
    loopscope_stm_disconnect(NULL);
    loopscope_stm_close(NULL);
    loopscope_stm_output_leave(NULL);
    loopscope_stm_input_leave(NULL);
    loopscope_stm_loan_give_back(NULL);
    loopscope_stm_release(NULL);
}

static void connections(struct loopscope_stm_service *service,
                        struct loopscope_stm_channel *channel)
{
    struct loopscope_stm_channel *reader;
    struct loopscope_stm_output *out, *outs[4];
    struct loopscope_stm_input *in;
    struct loopscope_stm_loan *loan;
    struct loopscope_stm_item item, items[3];
    struct loopscope_stm_counts counts;
    void *memory;
    size_t count = 3;
    char line[64];

    for (int each = 0; each < 4; each++)
        IS(LOOPSCOPE_STM_OK, loopscope_stm_output(channel, &outs[each]));
    IS(LOOPSCOPE_STM_TOO_MANY, loopscope_stm_output(channel, &out));
    for (int each = 1; each < 4; each++)
        loopscope_stm_output_leave(outs[each]);
    out = outs[0];
    IS(LOOPSCOPE_STM_OK, loopscope_stm_open(service, "frames", false, &reader));
    IS(LOOPSCOPE_STM_FAILED, loopscope_stm_output(reader, &outs[1]));
    IS(LOOPSCOPE_STM_OK,
       loopscope_stm_input(reader, LOOPSCOPE_STM_FROM_TIME, 1, true, 3, &in));
    loopscope_stm_close(reader);

    for (int64_t time = 1; time < 4 && fgets(line, sizeof line, stdin) != NULL; time++)
        IS(LOOPSCOPE_STM_OK, loopscope_stm_put(out, time, time == 1, line, strlen(line), 0));
    HOLDS(loopscope_stm_item_bytes(channel) == 64);
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_put(out, 9, 0, line, 65, 0));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_put(out, 9, 0, NULL, 1, 0));
    IS(LOOPSCOPE_STM_EXISTS, loopscope_stm_put(out, 1, 0, NULL, 0, 0));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_loan(out, LOOPSCOPE_STM_FOREVER, &loan, &memory));
    IS(LOOPSCOPE_STM_TOO_MANY, loopscope_stm_loan(out, 0, &loan, &memory));
    IS(LOOPSCOPE_STM_EXISTS, loopscope_stm_loan_put(loan, 3, 0, 0, LOOPSCOPE_STM_FOREVER));
    HOLDS(fgets((char *)memory, 64, stdin) != NULL);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_loan_put(loan, 4, 0, strlen((char *)memory), 0));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_loan(out, 0, &loan, &memory));
    loopscope_stm_loan_give_back(loan);

    IS(LOOPSCOPE_STM_OK, loopscope_stm_get(in, 2, LOOPSCOPE_STM_FOREVER, &item));
    HOLDS(item.time == 2 && item.half_width == 0 && item.length > 0 && item.put_ns > 0 &&
          item.put_error_ns == 0);
    IS(LOOPSCOPE_STM_TOO_MANY, loopscope_stm_range(in, 1, 9, items, &count));
    HOLDS(count == 3);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_range(in, 1, 3, items, &count));
    HOLDS(count == 3 && items[0].half_width == 1 && items[1].bytes == item.bytes && items[2].time == 3);
    for (size_t each = 0; each < count; each++)
        loopscope_stm_release(&items[each]);
    loopscope_stm_release(&items[0]);
    HOLDS(item.bytes != NULL && items[0].bytes == NULL);
    loopscope_stm_release(&item);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_oldest(in, 0, &item));
    HOLDS(item.time == 1);
    loopscope_stm_release(&item);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_newest(in, 0, &item));
    HOLDS(item.time == 4);
    loopscope_stm_release(&item);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_look(in, NULL, line, 3, &item));
    HOLDS(item.time == 4 && item.length > 3 && item.bytes == line && memcmp(line, "and", 3) == 0);
    loopscope_stm_release(&item);
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_look(in, NULL, NULL, 3, &item));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_look(in, &(items[0].time), NULL, 0, &item));
    IS(LOOPSCOPE_STM_NOT_YET, loopscope_stm_look(in, &item.time, line, 3, &item));
    IS(LOOPSCOPE_STM_AMBIGUOUS, loopscope_stm_nearest(in, 2, 9, 0, 0, &item));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_nearest(in, 20, 16, 0, 0, &item));
    HOLDS(item.time == 4);
    loopscope_stm_release(&item);
    IS(LOOPSCOPE_STM_NOT_YET, loopscope_stm_nearest(in, 20, 15, 0, 1000000, &item));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_newest(in, 0, &item));
    IS(LOOPSCOPE_STM_NOT_YET, loopscope_stm_unseen(in, 0, &item));
    const int64_t times[] = {3, 1};
    IS(LOOPSCOPE_STM_OK, loopscope_stm_consume_each(in, times, 2));
    IS(LOOPSCOPE_STM_GONE, loopscope_stm_get(in, times[1], 0, &item));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_consume_each(in, NULL, 0));
    IS(LOOPSCOPE_STM_INVALID, loopscope_stm_consume_each(in, NULL, 1));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_consume_until(in, 4));
    IS(LOOPSCOPE_STM_GONE, loopscope_stm_get(in, 4, 0, &items[0]));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_bound(out, 100));
    IS(LOOPSCOPE_STM_NEVER, loopscope_stm_get(in, 99, LOOPSCOPE_STM_FOREVER, &items[0]));
    IS(LOOPSCOPE_STM_LATE, loopscope_stm_put(out, 99, 0, NULL, 0, 0));
    IS(LOOPSCOPE_STM_OK, loopscope_stm_count(channel, &counts));
    HOLDS(counts.put == 4 && counts.present == 4 && counts.collected == 0 && counts.dropped == 0);
    HOLDS(counts.free == 16 + 4 - 4);
    /* The item outlives its connection. */
    loopscope_stm_input_leave(in);
    HOLDS(item.time == 4 && ((const char *)item.bytes)[item.length - 1] == '\n');
    loopscope_stm_release(&item);
    loopscope_stm_output_leave(out);
}

int main(int argc, char **argv)
{
    struct loopscope_stm_service *service;
    struct loopscope_stm_channel *channel;
    struct loopscope_stm_input *keeps;
    struct loopscope_stm_options options;
    HOLDS(argc == 2);
    HOLDS(strcmp(loopscope_stm_error(), "") == 0);
    IS(LOOPSCOPE_STM_FAILED, loopscope_stm_connect("/nobody/is/here", &service));
    HOLDS(strstr(loopscope_stm_error(), "loopscope stm serve") != NULL);
    IS(LOOPSCOPE_STM_OK, loopscope_stm_connect(argv[1], &service));
    memset(&options, 0, sizeof options);
    options.item_bytes = 64;
    IS(LOOPSCOPE_STM_OK, loopscope_stm_create(service, "frames", &options, &channel));
    /* The items stay for this one. */
    IS(LOOPSCOPE_STM_OK,
       loopscope_stm_input(channel, LOOPSCOPE_STM_FROM_OLDEST, 0, false, 1, &keeps));
    small_channel(service);
    turns();
    derived(service);
    mistakes(service, channel);
    connections(service, channel);
    loopscope_stm_disconnect(service);
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    loopscope_stm_input_leave(keeps);
    loopscope_stm_close(channel);
    return 0;
}
