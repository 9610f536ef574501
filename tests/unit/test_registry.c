/* The table of sandboxes: its order, its pages, its bounds, and what an agent may say of itself. */
#include "orchestrator/registry.h"

#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define OK(call)       cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, c) cr_assert((call) == -1 && err.code == (c), "%s", err.text)
#define COUNT          300u

static struct err err;
static struct registry *registry;

static void setup(void)
{
    OK(registry_new(&registry, &err));
}

static void teardown(void)
{
    registry_free(registry);
    registry_free(NULL);
}

/* cppcheck-suppress unknownMacro */
TestSuite(registry, .init = setup, .fini = teardown);

static struct sandbox *ensure(const char *id)
{
    struct sandbox *sandbox = NULL;
    struct sandbox_record record = { .labels = "env=ci" };
    (void)snprintf(record.id, sizeof(record.id), "%s", id);
    OK(registry_set(registry, &record, &sandbox, &err));
    cr_assert_str_eq(sandbox->id, id);
    return sandbox;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

Test(registry, pages_of_any_size_are_the_sorted_list)
{
    static char ids[COUNT][SANDBOX_ID_MAX + 1];
    uint64_t seed = 7;
    for (unsigned i = 0; i < COUNT; i++) {
        (void)snprintf(ids[i], sizeof(ids[i]), "%c%x-%u", "az09"[random_below(&seed, 4)],
                       (unsigned)random_below(&seed, 1u << (i % 20)), i);
        struct sandbox *sandbox = ensure(ids[i]);
        cr_assert_eq(ensure(ids[i]), sandbox, "it was made twice");
    }
    cr_assert_eq(registry_count(registry), COUNT);
    qsort(ids, COUNT, sizeof(ids[0]), compare);
    for (unsigned page = 1; page < 50; page += 7) {
        unsigned at = 0;
        char token[SANDBOX_ID_MAX + 1] = "";
        struct sandbox *one;
        while ((one = registry_next(registry, token))) {
            for (unsigned i = 0; i < page && one; i++, one = one->hh.next) {
                cr_assert_str_eq(one->id, ids[at++]);
                (void)memcpy(token, one->id, sizeof(token));
            }
        }
        cr_assert_eq(at, COUNT);
    }
}

Test(registry, a_page_goes_on_behind_a_sandbox_that_is_gone)
{
    (void)ensure("b");
    (void)ensure("d");
    cr_expect_str_eq(registry_next(registry, "")->id, "b");
    cr_expect_str_eq(registry_next(registry, "a")->id, "b");
    cr_expect_str_eq(registry_next(registry, "c")->id, "d");
    cr_expect_null(registry_next(registry, "d"));
    cr_expect_null(registry_next(registry, "e"));
    cr_expect_str_eq(registry_any(registry)->id, "b");
}

Test(registry, who_asks_for_nothing_is_told_what_to_do)
{
    struct sandbox *sandbox = NULL;
    (void)ensure("here");
    OK(registry_get(registry, "here", &sandbox, &err));
    FAILS(registry_get(registry, "there", &sandbox, &err), ERR_NOT_FOUND);
    FAILS(registry_get(registry, "../there", &sandbox, &err), ERR_INVALID);
    FAILS(registry_get(registry, "", &sandbox, &err), ERR_INVALID);
    cr_expect_str_eq(sandbox->id, "here");
    cr_expect_null(registry_find(registry, "there"));
}

Test(registry, a_full_registry_takes_no_new_sandbox_but_knows_the_old_ones)
{
    char id[SANDBOX_ID_MAX + 1];
    struct sandbox *sandbox;
    /* Downwards, so that each goes to the front of the sorted list. */
    for (unsigned i = REGISTRY_SANDBOXES_MAX; i > 0; i--) {
        (void)snprintf(id, sizeof(id), "s%08u", i);
        (void)ensure(id);
    }
    const struct sandbox_record record = { .id = "a" };
    FAILS(registry_set(registry, &record, &sandbox, &err), ERR_EXHAUSTED);
    (void)ensure(id);
    cr_expect_eq(registry_count(registry), REGISTRY_SANDBOXES_MAX);
}

Test(registry, what_an_agent_says_of_itself_is_bounded_and_copied)
{
    struct sandbox *sandbox = ensure("s");
    char text[REGISTRY_TEXT_MAX + 2];
    (void)memset(text, 'x', sizeof(text));
    text[REGISTRY_TEXT_MAX] = '\0';
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    info.hostname = text;
    OK(sandbox_set_info(sandbox, &info, &err));
    info.hostname = (char *)"host";
    OK(sandbox_set_info(sandbox, &info, &err));
    text[REGISTRY_TEXT_MAX] = 'x';
    text[REGISTRY_TEXT_MAX + 1] = '\0';
    info.kernel = text;
    FAILS(sandbox_set_info(sandbox, &info, &err), ERR_PROTOCOL);
    info.kernel = (char *)"a\nb";
    FAILS(sandbox_set_info(sandbox, &info, &err), ERR_PROTOCOL);
    info.kernel = (char *)"\x1b[2J";
    FAILS(sandbox_set_info(sandbox, &info, &err), ERR_PROTOCOL);
    info.kernel = (char *)"";
    Sandstorm__V1__Label label = SANDSTORM__V1__LABEL__INIT;
    Sandstorm__V1__Label *labels[] = { &label };
    info.labels = labels;
    info.n_labels = 1;
    FAILS(sandbox_set_info(sandbox, &info, &err), ERR_INVALID);
    label.name = (char *)"zone";
    label.value = (char *)"a";
    info.hostname = (char *)"host";
    OK(sandbox_set_info(sandbox, &info, &err));
    cr_expect_str_eq(sandbox->reported, "zone=a");
    cr_expect_str_eq(sandbox->labels, "env=ci", "an agent has labelled itself");

    struct sandbox_description description;
    sandbox_describe(sandbox, &description);
    cr_expect_str_eq(description.message.info->hostname, "host",
                     "what was refused changed something");
    cr_expect_eq(description.message.state, SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_OFFLINE);
    cr_expect_null(description.message.metrics);
    sandbox->runner_connected = true;
    sandbox->has_metrics = true;
    sandbox_describe(sandbox, &description);
    cr_expect_not(description.message.runner_connected, "it is offline");
    cr_expect_not_null(description.message.metrics);
    cr_expect_eq(description.message.n_labels, 1u);
    cr_expect_str_eq(description.message.labels[0]->name, "env");
    cr_expect_str_eq(description.message.labels[0]->value, "ci");
}
