/* CommandService.ListCommands: the history as clients see it, newest first. Pages come from the
 * store's thread (orchestrator/store_commands.c); what the caller may see of them, and in which
 * state a command is, is decided on the loop. A page of which nothing was left is followed by the
 * next one before there is an answer. */
#include "orchestrator/control.h"

#include "common/wire.h"
#include "orchestrator/clients.h"
#include "orchestrator/history.h"
#include "orchestrator/label_messages.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>
#include <string.h>

/* A page fits a message, whatever is in its commands. */
#define PAGE_BYTES     (192u * 1024)
#define COMMAND_BYTES  512u /* of one without labels and outcome, with room to grow */
#define COMMAND_FIELDS 48u  /* of one without labels, with room to grow */
#define ROUNDS_MAX     16u  /* pages read for one answer; then it is short, and the next goes on */
#define STATE_COUNT    (SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_UNKNOWN + 1)

struct item {
    struct command_record record;
    Sandstorm__V1__CommandState state;
    Sandstorm__V1__Command message;
    struct label_messages labels;
    ProtobufCMessage *outcome;
};

struct list_job {
    struct control_job control;
    char sandbox_id[SANDBOX_ID_MAX + 1], id[COMMAND_ID_LEN + 1];
    struct command_filter filter;
    bool any_state, states[STATE_COUNT];
    unsigned wanted, kept, rounds;
    size_t bytes, fields;
    unsigned asked, count; /* rows of the store */
    struct command_record rows[CONTROL_PAGE_MAX];
    struct item items[CONTROL_PAGE_MAX];
    Sandstorm__V1__Command *pointers[CONTROL_PAGE_MAX];
};

static int list_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct list_job *list = CONTAINER_OF(job, struct list_job, control.job);
    /* Where much is filtered out, a small page is not searched for in small steps. */
    list->asked = list->rounds ? CONTROL_PAGE_MAX : list->wanted;
    return store_command_list(tx, &list->filter, list->rows, list->asked, &list->count, err);
}

/* Commands of a sandbox that is gone have no labels to hold a scope against, nor have those of an
 * earlier machine of that name. */
static bool sees(const struct list_job *list, const struct command_record *record)
{
    struct orchestrator *orchestrator = list->control.orchestrator;
    const struct sandbox *sandbox = registry_find(orchestrator->registry, record->sandbox_id);
    const struct client *client = clients_find(orchestrator->clients, list->control.peer.name);
    bool same = sandbox && record->ordered_ms >= sandbox->enrolled_ms;
    return same ? access_sees(orchestrator, &list->control.peer, sandbox)
                : client && !*client->scope;
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
    struct item *item = &list->items[list->kept++];
    item->record = *record;
    item->state = state;
    return true;
}

/* False when the answer is full. */
static bool take_rows(struct list_job *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        const struct command_record *record = &list->rows[i];
        Sandstorm__V1__CommandState state = history_state(list->control.orchestrator, record);
        bool shown = sees(list, record) && (list->any_state || list->states[state]);
        if (shown && (list->kept == list->wanted || !keep(list, record, state)))
            return false;
        list->filter.before = record->number;
    }
    return list->kept < list->wanted;
}

static int describe(struct item *item, struct err *err)
{
    struct command_record *record = &item->record;
    Sandstorm__V1__Command *message = &item->message;
    sandstorm__v1__command__init(message);
    message->id = record->id;
    message->sandbox_id = record->sandbox_id;
    message->state = item->state;
    message->ordered_by = record->ordered_by;
    message->ordered_unix_ms = record->ordered_ms;
    message->started_unix_ms = record->started_ms;
    message->ended_unix_ms = record->ended_ms;
    message->pid = record->pid;
    message->end_offset = record->end_offset;
    message->n_labels = label_messages_fill(&item->labels, record->labels);
    message->labels = item->labels.pointers;
    if (record->ended_ms && wire_unpack(&sandstorm__v1__outcome__descriptor, record->outcome,
                                        record->outcome_size, &item->outcome, err) < 0)
        return err_wrap(err, "the outcome of command %s in the store", record->id);
    message->outcome = (Sandstorm__V1__Outcome *)item->outcome;
    return 0;
}

static void answer(struct list_job *list, bool more)
{
    Sandstorm__V1__ListCommandsResponse response = SANDSTORM__V1__LIST_COMMANDS_RESPONSE__INIT;
    char token[24];
    struct err err = { 0 };
    int r = 0;
    unsigned kept = list->kept;
    for (unsigned i = 0; i < kept && r == 0; i++) {
        r = describe(&list->items[i], &err);
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
        wire_free(list->items[i].outcome);
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
        read_token(request->page_token, &list->filter.before, err) < 0)
        return -1;
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

#define COMING(name)                                                                               \
    CONTROL_LATER(name)                                                                            \
    {                                                                                              \
        (void)userdata;                                                                            \
        (void)ticket;                                                                              \
        (void)request;                                                                             \
        return err_set(err, ERR_UNIMPLEMENTED, "this orchestrator cannot do that");                \
    }

COMING(control_start_command)
COMING(control_get_command)
COMING(control_wait_command)
COMING(control_signal_command)
COMING(control_cancel_command)
COMING(control_write_stdin)
COMING(control_close_stdin)
