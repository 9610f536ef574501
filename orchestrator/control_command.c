/* CommandService.ListCommands: the history as clients see it, newest first. Pages come from the
 * store's thread (orchestrator/store_commands.c); what the caller may see of them, and in which
 * state a command is, is decided on the loop. A page of which nothing was left is followed by the
 * next one before there is an answer. */
#include "orchestrator/control_command.h"

#include "common/selector.h"
#include "common/wire.h"
#include "orchestrator/command_lookup.h"
#include "orchestrator/history.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>
#include <string.h>

/* A page fits a message, whatever is in its commands. */
#define PAGE_BYTES     (192u * 1024)
#define COMMAND_BYTES  512u /* of one without labels and outcome, with room to grow */
#define COMMAND_FIELDS 48u  /* of one without labels, with room to grow */
#define ROUNDS_MAX     16u  /* pages read for one answer; then it is short, and the next goes on */
#define STATE_COUNT    (SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_UNKNOWN + 1)

struct list_job {
    struct control_job control;
    char sandbox_id[SANDBOX_ID_MAX + 1], id[COMMAND_ID_LEN + 1];
    struct command_filter filter;
    struct selector selector;
    int64_t since_ms, until_ms;
    char ordered_by[STORE_ACTOR_MAX];
    bool any_state, states[STATE_COUNT];
    unsigned wanted, kept, rounds;
    size_t bytes, fields;
    unsigned asked, count; /* rows of the store */
    struct command_record rows[CONTROL_PAGE_MAX];
    struct command_item items[CONTROL_PAGE_MAX];
    Sandstorm__V1__Command *pointers[CONTROL_PAGE_MAX];
};

static int list_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct list_job *list = CONTAINER_OF(job, struct list_job, control.job);
    /* Where much is filtered out, a small page is not searched for in small steps. */
    list->asked = list->rounds ? CONTROL_PAGE_MAX : list->wanted;
    return store_command_list(tx, &list->filter, list->rows, list->asked, &list->count, err);
}

/* False when it does not fit any more. */
static bool keep(struct list_job *list, const struct command_record *record,
                 Sandstorm__V1__CommandState state)
{
    size_t bytes = COMMAND_BYTES + record->outcome_size + 2 * strlen(record->labels);
    size_t fields = COMMAND_FIELDS + 3 * (size_t)labels_count(record->labels);
    if (list->bytes + bytes > PAGE_BYTES || list->fields + fields > WIRE_FIELDS_MAX)
        return false;
    list->bytes += bytes;
    list->fields += fields;
    struct command_item *item = &list->items[list->kept++];
    item->record = *record;
    item->state = state;
    return true;
}

/* What the store has no index for. */
static bool is_asked_for(const struct list_job *list, const struct command_record *record)
{
    return record->ordered_ms >= list->since_ms &&
           (!list->until_ms || record->ordered_ms < list->until_ms) &&
           (!*list->ordered_by || strcmp(list->ordered_by, record->ordered_by) == 0) &&
           selector_matches(&list->selector, record->labels, NULL);
}

/* False when the answer is full. */
static bool take_rows(struct list_job *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        const struct command_record *record = &list->rows[i];
        Sandstorm__V1__CommandState state = history_state(list->control.orchestrator, record);
        bool shown = is_asked_for(list, record) &&
                     command_visible(list->control.orchestrator, &list->control.peer, record) &&
                     (list->any_state || list->states[state]);
        if (shown && (list->kept == list->wanted || !keep(list, record, state)))
            return false;
        list->filter.before = record->number;
    }
    return list->kept < list->wanted;
}

static void answer(struct list_job *list, bool more)
{
    Sandstorm__V1__ListCommandsResponse response = SANDSTORM__V1__LIST_COMMANDS_RESPONSE__INIT;
    char token[24];
    struct err err = { 0 };
    int r = 0;
    unsigned kept = list->kept;
    for (unsigned i = 0; i < kept && r == 0; i++) {
        r = command_item_fill(list->control.orchestrator, &list->items[i], &err);
        list->pointers[i] = &list->items[i].message;
    }
    response.n_commands = kept;
    response.commands = list->pointers;
    (void)snprintf(token, sizeof(token), "%lld", (long long)list->filter.before);
    if (more)
        response.next_page_token = token;
    if (r < 0)
        err.code = ERR_INTERNAL;
    if (r < 0)
        rpc_ticket_fail(list->control.ticket, &err);
    else
        rpc_ticket_reply(list->control.ticket, &response.base);
    for (unsigned i = 0; i < kept; i++)
        command_item_done(&list->items[i]);
    free(list);
}

static void list_done(struct store_job *job)
{
    struct list_job *list = CONTAINER_OF(job, struct list_job, control.job);
    struct rpc_ticket *ticket = list->control.ticket;
    struct err err;
    if (control_job_failed(&list->control))
        return;
    bool last = list->count < list->asked, room = take_rows(list);
    if (!room || last || ++list->rounds == ROUNDS_MAX)
        answer(list, !last || !room);
    else if (control_job_submit(&list->control, list_work, list_done, false, &err) < 0)
        rpc_ticket_fail(ticket, &err);
}

static int read_states(const Sandstorm__V1__ListCommandsRequest *request, struct list_job *list,
                       struct err *err)
{
    bool open = false, ended = false;
    list->any_state = request->n_states == 0;
    for (size_t i = 0; i < request->n_states; i++) {
        int state = (int)request->states[i];
        if (state <= 0 || state >= (int)STATE_COUNT)
            return err_set(err, ERR_INVALID, "there is no command state %d", state);
        list->states[state] = true;
        ended |= state == SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED;
        open |= state != SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED;
    }
    list->filter.choice = open == ended ? COMMANDS_ALL : open ? COMMANDS_OPEN : COMMANDS_ENDED;
    return 0;
}

static int read_token(const char *token, int64_t *ret, struct err *err)
{
    char *end;
    *ret = 0;
    if (!*token)
        return 0;
    errno = 0;
    *ret = strtoll(token, &end, 10);
    if (errno || *end || *ret <= 0 || *token < '0' || *token > '9')
        return err_set(err, ERR_INVALID, "the page token is not one of ours");
    return 0;
}

static int read_request(const Sandstorm__V1__ListCommandsRequest *request, struct list_job *list,
                        struct err *err)
{
    struct command_id id;
    if ((*request->sandbox_id && sandbox_id_check(request->sandbox_id, err) < 0) ||
        (*request->command_id && command_id_parse(request->command_id, &id, err) < 0) ||
        read_token(request->page_token, &list->filter.before, err) < 0 ||
        selector_parse(request->selector, &list->selector, err) < 0)
        return -1;
    if (strlen(request->ordered_by) >= sizeof(list->ordered_by))
        return err_set(err, ERR_INVALID, "nobody has such a long name; give it as \"client/ann\"");
    (void)snprintf(list->ordered_by, sizeof(list->ordered_by), "%s", request->ordered_by);
    list->since_ms = request->since_unix_ms;
    list->until_ms = request->until_unix_ms;
    (void)snprintf(list->sandbox_id, sizeof(list->sandbox_id), "%s", request->sandbox_id);
    (void)snprintf(list->id, sizeof(list->id), "%s", request->command_id);
    list->filter.sandbox_id = list->sandbox_id;
    list->filter.id = list->id;
    list->wanted =
        request->page_size ? MIN(request->page_size, CONTROL_PAGE_MAX) : CONTROL_PAGE_DEFAULT;
    return read_states(request, list, err);
}

int control_list_commands(void *userdata, struct rpc_ticket *ticket,
                          const ProtobufCMessage *message, struct err *err)
{
    struct list_job *list = control_job_new(sizeof(*list), userdata, ticket, err);
    if (!list)
        return -1;
    if (read_request((const Sandstorm__V1__ListCommandsRequest *)message, list, err) < 0) {
        free(list);
        return -1;
    }
    return control_job_submit(&list->control, list_work, list_done, false, err);
}
