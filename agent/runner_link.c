/* The runner's end of the socket to the link. One packet is one frame. Says what commands have to
 * say when the socket takes it, one frame of each command in turn: a chatty command does not starve
 * a quiet one, and nothing queues here but one packet and a few refusals. */
#include "agent/runner-internal.h"
#include "common/version.h"
#include "common/wire.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define REFUSALS_MAX       64u
#define POSITIONS_IN_FRAME 256u

struct refusal {
    char command_id[COMMAND_ID_LEN + 1];
    struct command_refusal what;
    Sandstorm__V1__OrderKind order;
    bool released; /* an Ended with lost(released) instead of a refusal */
};

struct runner_link {
    struct runner *runner;
    int fd;
    struct loop_io *io;
    uint8_t packet[RUNNER_PACKET_MAX];
    size_t pending; /* bytes of `packet` that the socket has not taken yet */

    bool status_due;
    bool welcomed; /* nothing but the status goes out before the first welcome */
    bool inventory_due;
    uint64_t epoch;
    struct command_id inventory_next; /* resumes here; empty: at the first */
    struct refusal refusals[REFUSALS_MAX];
    unsigned first_refusal, refusal_count;
};

static void pump(struct runner_link *link);

/* Every order may need an answer, and an eviction one more: without room for two, none is read. */
static bool reads(const struct runner_link *link)
{
    return link->refusal_count + 2 <= REFUSALS_MAX;
}

static uint32_t wanted(const struct runner_link *link, uint32_t more)
{
    return (reads(link) ? EPOLLIN : 0) | more;
}

static size_t pack_frame(struct runner_link *link, const Sandstorm__V1__AgentFrame *frame)
{
    return sandstorm__v1__agent_frame__pack(frame, link->packet);
}

static size_t pack_status(struct runner_link *link)
{
    const struct runner *runner = link->runner;
    Sandstorm__V1__RunnerStatus status = SANDSTORM__V1__RUNNER_STATUS__INIT;
    status.commands_running = runner_count_running(runner);
    for (const struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next)
        status.spool_bytes += command_spooled(entry->command);
    status.version = (char *)SANDSTORM_VERSION;
    char *enforces[TREE_LIMIT_COUNT_];
    for (unsigned i = 0; i < TREE_LIMIT_COUNT_; i++)
        if (forest_enforces(runner->forest) & 1u << i)
            enforces[status.n_enforces++] = (char *)tree_limit_name((enum tree_limit)i);
    status.enforces = enforces;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_RUNNER_STATUS;
    frame.runner_status = &status;
    link->status_due = false;
    return pack_frame(link, &frame);
}

/* A frame with as many positions as fit. Commands that come or go between two frames are harmless:
 * new ones were ordered on this very stream, and gone ones were released on it. */
static size_t pack_inventory(struct runner_link *link)
{
    struct runner *runner = link->runner;
    struct runner_entry *entry = runner->commands;
    if (*link->inventory_next.text)
        entry = runner_find(runner, &link->inventory_next);
    Sandstorm__V1__CommandPosition positions[POSITIONS_IN_FRAME];
    Sandstorm__V1__CommandPosition *pointers[POSITIONS_IN_FRAME];
    Sandstorm__V1__Inventory inventory = SANDSTORM__V1__INVENTORY__INIT;
    for (; entry && inventory.n_commands < POSITIONS_IN_FRAME; entry = entry->hh.next) {
        size_t i = inventory.n_commands++;
        sandstorm__v1__command_position__init(&positions[i]);
        command_position(entry->command, &positions[i]);
        pointers[i] = &positions[i];
    }
    inventory.commands = pointers;
    inventory.epoch = link->epoch;
    inventory.runner_instance = runner->instance;
    inventory.complete = entry == NULL;
    link->inventory_due = entry != NULL;
    if (entry)
        link->inventory_next = entry->id;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY;
    frame.inventory = &inventory;
    return pack_frame(link, &frame);
}

static size_t pack_refusal(struct runner_link *link)
{
    struct refusal *item = &link->refusals[link->first_refusal];
    link->first_refusal = (link->first_refusal + 1) % REFUSALS_MAX;
    link->refusal_count--;

    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    Sandstorm__V1__Refusal refusal = SANDSTORM__V1__REFUSAL__INIT;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    Sandstorm__V1__Lost lost = SANDSTORM__V1__LOST__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_EVENT;
    frame.event = &event;
    event.command_id = item->command_id;
    if (item->released) {
        lost.reason = SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED;
        lost.detail =
            (char *)"this id has already run and its result was delivered; use a new id to run "
                    "it again";
        outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_LOST;
        outcome.lost = &lost;
        ended.outcome = &outcome;
        event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
        event.ended = &ended;
    } else {
        refusal.reason = item->what.reason;
        refusal.detail = (char *)item->what.detail;
        refusal.order = item->order;
        event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL;
        event.refusal = &refusal;
    }
    return pack_frame(link, &frame);
}

static size_t pack_event(struct runner_link *link)
{
    struct runner *runner = link->runner;
    struct runner_entry *entry = runner->ready;
    DL_DELETE(runner->ready, entry);
    entry->ready = false;
    if (!command_has_event(entry->command))
        return 0;
    size_t size = command_pack_event(entry->command, link->packet, sizeof(link->packet));
    if (command_has_event(entry->command)) {
        entry->ready = true;
        DL_APPEND(runner->ready, entry);
    }
    return size;
}

/* 0 when there is nothing to say. */
static size_t next_packet(struct runner_link *link)
{
    if (link->status_due)
        return pack_status(link);
    if (!link->welcomed)
        return 0;
    if (link->inventory_due)
        return pack_inventory(link);
    if (link->refusal_count > 0)
        return pack_refusal(link);
    while (link->runner->ready) {
        size_t size = pack_event(link);
        if (size > 0)
            return size;
    }
    return link->runner->logs ? log_ring_pack(link->runner->logs, link->packet) : 0;
}

static void pump(struct runner_link *link)
{
    while (link->pending > 0 || (link->pending = next_packet(link)) > 0) {
        ssize_t n = send(link->fd, link->packet, link->pending, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
            loop_io_want(link->io, wanted(link, EPOLLOUT));
            return;
        }
        if (n < 0)
            break; /* gone; the reading side tells */
        link->pending = 0;
    }
    loop_io_want(link->io, EPOLLIN);
    runner_maybe_quit(link->runner);
}

/* One packet; false when the link is gone. */
static bool receive(struct runner_link *link)
{
    uint8_t data[RUNNER_PACKET_MAX + WIRE_MESSAGE_MAX];
    ssize_t n = recv(link->fd, data, sizeof(data), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    struct err err;
    if (runner_receive(link->runner, data, (size_t)n, &err) == 0)
        return true;
    log_error("the link broke the protocol", LF_ERR(&err));
    return false;
}

static void on_ready(void *userdata, uint32_t events)
{
    struct runner_link *link = userdata;
    bool readable = (events & EPOLLIN && reads(link)) || events & (EPOLLHUP | EPOLLERR);
    if (readable && !receive(link)) {
        runner_link_gone(link->runner);
        return;
    }
    pump(link);
}

int runner_link_new(struct runner *runner, int fd, struct runner_link **ret, struct err *err)
{
    struct runner_link *link = calloc(1, sizeof(*link));
    if (!link)
        return err_nomem(err);
    link->runner = runner;
    link->fd = -1;
    if (loop_io_new(runner->loop, fd, EPOLLIN | EPOLLOUT, on_ready, link, &link->io, err) < 0) {
        runner_link_free(link);
        return -1;
    }
    link->fd = fd;
    link->status_due = true;
    *ret = link;
    return 0;
}

void runner_link_free(struct runner_link *link)
{
    if (!link)
        return;
    loop_io_free(link->io);
    close_fd(&link->fd);
    free(link);
}

bool runner_link_listens(const struct runner_link *link)
{
    return link->welcomed;
}

void runner_link_wake(struct runner_link *link)
{
    /* From the loop rather than from here: several commands that change at once share a wake-up. */
    loop_io_want(link->io, wanted(link, EPOLLOUT));
}

void runner_link_status_changed(struct runner_link *link)
{
    link->status_due = true;
    runner_link_wake(link);
}

void runner_link_begin_inventory(struct runner_link *link, uint64_t epoch)
{
    link->welcomed = true;
    link->inventory_due = true;
    link->epoch = epoch;
    link->inventory_next.text[0] = '\0';
    link->refusal_count = 0;
    runner_link_wake(link);
}

void runner_link_skip(struct runner_link *link, const struct runner_entry *entry)
{
    const struct runner_entry *next = entry->hh.next;
    /* Without a next one the look-up finds nothing, and that ends the inventory. */
    if (next && strcmp(link->inventory_next.text, entry->id.text) == 0)
        link->inventory_next = next->id;
}

static struct refusal *queue_refusal(struct runner_link *link, const struct command_id *id)
{
    assert(link->refusal_count < REFUSALS_MAX);
    struct refusal *item =
        &link->refusals[(link->first_refusal + link->refusal_count++) % REFUSALS_MAX];
    *item = (struct refusal){ 0 };
    (void)memcpy(item->command_id, id->text, COMMAND_ID_LEN);
    runner_link_wake(link);
    return item;
}

void runner_link_refuse(struct runner_link *link, const struct command_id *id,
                        Sandstorm__V1__OrderKind order, const struct command_refusal *refusal)
{
    struct refusal *item = queue_refusal(link, id);
    item->what = *refusal;
    item->order = order;
}

void runner_link_say_released(struct runner_link *link, const struct command_id *id)
{
    queue_refusal(link, id)->released = true;
}

void runner_link_hand_over(struct runner_link *link, Sandstorm__Runner__Handover *ret)
{
    if (link->inventory_due || link->refusal_count > 0)
        return;
    ret->link_fd = link->fd;
    ret->link_welcomed = link->welcomed;
    ret->link_epoch = link->epoch;
    ret->link_packet = (ProtobufCBinaryData){ link->pending, link->packet };
}

int runner_link_take_over(struct runner *runner, const Sandstorm__Runner__Handover *from,
                          struct err *err)
{
    if (from->link_packet.len > RUNNER_PACKET_MAX)
        return err_set(err, ERR_INVALID, "the handover's packet is too long");
    if (runner_link_new(runner, from->link_fd, &runner->link, err) < 0)
        return -1;
    struct runner_link *link = runner->link;
    link->welcomed = from->link_welcomed;
    link->epoch = from->link_epoch;
    link->pending = from->link_packet.len;
    if (link->pending > 0)
        (void)memcpy(link->packet, from->link_packet.data, link->pending);
    return 0;
}

bool runner_link_dead(const struct runner_link *link)
{
    char byte;
    ssize_t n = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    /* One that goes with packets unread leaves an error first, and its end behind that. */
    return n == 0 || (n < 0 && errno == ECONNRESET);
}
