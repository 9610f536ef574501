/* The ledger against a model in memory: random appends, reads, trims, forgetting and restarts, with
 * segments so small that they are dropped, emptied and merged all the time. What the model knows of
 * a command is two numbers, because every byte is a function of its offset. */
#include "ledger_fixture.h"

#include "random.h"

#define COMMANDS 40u
#define STEPS    2000u

struct model {
    uint64_t first, end; /* nothing below `first` may be missed; 0: nothing was appended */
    struct {
        uint64_t from, to;
    } holes[64];
    unsigned hole_count;
};

static struct model models[COMMANDS];
static uint64_t state;

static void seed_from(uint64_t seed)
{
    state = seed;
    memset(models, 0, sizeof(models));
}

static uint64_t below(uint64_t bound)
{
    return random_below(&state, bound);
}

/* cppcheck-suppress unknownMacro */
TestSuite(ledger_random, .init = set_up, .fini = tear_down, .timeout = 240);

/* Half of them small, a few large. */
static uint64_t some_length(void)
{
    uint64_t which = below(20);
    return 1 + (which < 10 ? below(50) : which < 19 ? below(3000) : below(40000));
}

/* Up to 16 appends at once, so that batches form. */
static void step_append(void)
{
    static struct one_append appends[16];
    unsigned count = 1 + (unsigned)below(ELEMENTS(appends));
    for (unsigned i = 0; i < count; i++) {
        unsigned command = (unsigned)below(COMMANDS);
        struct model *model = &models[command];
        uint64_t offset = model->end;
        if (below(50) == 0 && model->hole_count < ELEMENTS(model->holes)) {
            offset += 1 + below(500);
            model->holes[model->hole_count].from = model->end;
            model->holes[model->hole_count++].to = offset;
        }
        prepare_append(&appends[i], command, offset, offset + some_length());
        model->end = appends[i].append.end;
        OK(ledger_log_append(ledger, &appends[i].append, &err));
    }
    for (unsigned i = 0; i < count; i++) {
        wait_for(&appends[i].done);
        OK(appends[i].append.result);
        free(appends[i].runs);
    }
}

static uint64_t in_holes(const struct model *model, uint64_t from)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < model->hole_count; i++)
        if (model->holes[i].to > from)
            sum += model->holes[i].to - MAX(model->holes[i].from, from);
    return sum;
}

static void check_command(unsigned command, uint64_t offset)
{
    const struct model *model = &models[command];
    const struct command_id id = id_of(command);
    struct gaps gaps;
    uint64_t first = 0, end = 0;
    bool kept = ledger_log_range(ledger, &id, &first, &end);
    if (!kept) {
        cr_assert_eq(in_holes(model, model->first), model->end - model->first,
                     "command %u from %lu to %lu is gone", command, model->first, model->end);
        return;
    }
    cr_assert_eq(end, model->end, "command %u: %lu, not %lu", command, end, model->end);
    uint64_t missed = first > model->first ? first - model->first : 0;
    cr_assert_leq(missed, in_holes(model, model->first) - in_holes(model, first),
                  "command %u begins at %lu, not %lu", command, first, model->first);
    cr_assert_eq(read_to_end(command, offset, &gaps), MAX(end, offset));
    cr_assert_eq(gaps.damaged, 0);
    /* A restart may have brought back some of what was trimmed, and some not. */
    offset = MAX(offset, model->first);
    cr_assert_eq(read_to_end(command, offset, &gaps), MAX(end, offset));
    uint64_t lost = offset < first ? first - offset : 0;
    cr_assert_eq(gaps.trimmed, lost + in_holes(model, MAX(offset, first)));
}

static void step_read(void)
{
    unsigned command = (unsigned)below(COMMANDS);
    check_command(command, below(models[command].end + 1));
}

static void step_trim(void)
{
    unsigned command = (unsigned)below(COMMANDS);
    struct model *model = &models[command];
    const struct command_id id = id_of(command);
    uint64_t under = model->first + below(model->end - model->first + 1);
    ledger_log_trim(ledger, &id, under);
    model->first = MAX(model->first, under);
}

static void step_forget(void)
{
    unsigned command = (unsigned)below(COMMANDS);
    const struct command_id id = id_of(command);
    ledger_log_forget(ledger, &id);
    models[command] = (struct model){ 0 };
}

static void check_all(void)
{
    for (unsigned i = 0; i < COMMANDS; i++)
        check_command(i, 0);
}

static void take_steps(unsigned count, unsigned restarts)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t which = below(100);
        if (which < 45)
            step_append();
        else if (which < 75)
            step_read();
        else if (which < 90)
            step_trim();
        else if (which < 98)
            step_forget();
        else if (below(100) < restarts)
            reopen_ledger();
    }
    check_all();
}

Test(ledger_random, everything_that_is_not_trimmed_is_there)
{
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        cr_log_info("seed %lu", seed);
        seed_from(seed * 7919);
        open_ledger();
        take_steps(STEPS, 20);
        for (unsigned i = 0; i < COMMANDS; i++) {
            const struct command_id id = id_of(i);
            ledger_log_forget(ledger, &id);
        }
        close_ledger();
    }
}

/* A restart at every step, and nothing in between gets lost or comes back from the dead. */
Test(ledger_random, restarts_change_nothing)
{
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    seed_from(4711);
    open_ledger();
    for (unsigned round = 0; round < 60; round++) {
        take_steps(20, 0);
        reopen_ledger();
        check_all();
    }
}

/* Most of what is there is dead at any time: emptying and merging is all that keeps the files few.
 */
Test(ledger_random, what_is_dead_does_not_stay_on_disk)
{
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    seed_from(99);
    open_ledger();
    for (unsigned round = 0; round < 400; round++) {
        step_append();
        step_append();
        for (unsigned i = 2; i < COMMANDS; i++) {
            const struct command_id id = id_of(i);
            ledger_log_forget(ledger, &id);
            models[i] = (struct model){ 0 };
        }
    }
    check_all();
    uint64_t live = 0;
    for (unsigned i = 0; i < 2; i++)
        live += models[i].end - models[i].first;
    let_it_turn();
    cr_assert_lt(ledger_log_bytes(ledger), 16 * live + 4 * LEDGER_SEGMENT_MIN);
    reopen_ledger();
    check_all();
}
