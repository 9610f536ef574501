/* AuditService.StreamAudit: rows as they come, checked on the way. Calls through client/client.c;
 * next: client/audit_check.c. */
#include "client/audit_check.h"
#include "client/client-internal.h"

#include "sandstorm/v1/admin.pb-c.h"

#include <string.h>

struct reading {
    const struct sandstorm_audit_options *options;
    struct audit_check check;
    bool started;
    bool stopped; /* by the caller: the end was not seen */
};

/* A hash that may be absent, which then is zeroes. */
static int take_hash(const ProtobufCBinaryData *data, uint8_t ret[SANDSTORM_HASH_LEN],
                     struct err *err)
{
    if (data->len != 0 && data->len != SANDSTORM_HASH_LEN)
        return err_set(err, ERR_PROTOCOL, "the orchestrator sent a hash of %zu bytes", data->len);
    (void)memset(ret, 0, SANDSTORM_HASH_LEN);
    if (data->len != 0)
        (void)memcpy(ret, data->data, SANDSTORM_HASH_LEN);
    return 0;
}

static int begin(struct reading *reading, const Sandstorm__V1__StreamAuditResponse *message,
                 struct err *err)
{
    const struct sandstorm_audit_options *options = reading->options;
    uint8_t previous[SANDSTORM_HASH_LEN], head[SANDSTORM_HASH_LEN];
    if (take_hash(&message->previous_hash, previous, err) < 0 ||
        take_hash(&message->head_hash, head, err) < 0)
        return -1;
    audit_check_start(&reading->check, options->after_seq,
                      options->after_seq == 0 && options->last > 0, previous, message->head_seq,
                      head);
    reading->started = true;
    return 0;
}

static int take_row(struct reading *reading, const Sandstorm__V1__AuditRow *message,
                    struct err *err)
{
    const struct sandstorm_audit_options *options = reading->options;
    uint8_t hash[SANDSTORM_HASH_LEN];
    if (take_hash(&message->hash, hash, err) < 0)
        return -1;
    const struct sandstorm_audit_row row = {
        .seq = message->seq,
        .time_unix_ms = message->time_unix_ms,
        .actor = message->actor,
        .action = message->action,
        .target = message->target,
        .detail = message->detail,
        .allowed = message->allowed,
        .hash = hash,
    };
    audit_check_row(&reading->check, &row);
    reading->stopped =
        options->each && !options->each(options->userdata, &row, &reading->check.report);
    return reading->stopped;
}

static int on_message(void *owner, ProtobufCMessage **message, struct err *err)
{
    struct reading *reading = owner;
    const Sandstorm__V1__StreamAuditResponse *answer =
        (const Sandstorm__V1__StreamAuditResponse *)*message;
    if (!reading->started && begin(reading, answer, err) < 0)
        return -1;
    for (size_t i = 0; i < answer->n_rows; i++) {
        int r = take_row(reading, answer->rows[i], err);
        if (r != 0)
            return r;
    }
    return 0;
}

int sandstorm_audit(struct sandstorm_client *client, const struct sandstorm_audit_options *options,
                    struct sandstorm_audit_report *ret, struct sandstorm_error *error)
{
    /* Everything may be long; a peer that is gone is noticed by the channel's keepalive. */
    static const struct client_method method = {
        "/sandstorm.v1.AuditService/StreamAudit",
        &sandstorm__v1__stream_audit_response__descriptor,
        RPC_NO_DEADLINE,
    };
    struct err err = { 0 };
    struct reading reading = { .options = options };
    Sandstorm__V1__StreamAuditRequest request = SANDSTORM__V1__STREAM_AUDIT_REQUEST__INIT;
    request.after_seq = options->after_seq;
    request.last = options->last;
    request.follow = options->follow;
    if (client_stream(client, &method, &request.base, on_message, &reading, &err) < 0) {
        client_explain(client, &err);
        return client_error(&err, error);
    }
    if (!reading.started) {
        (void)err_set(&err, ERR_PROTOCOL,
                      "the orchestrator did not say where its audit begins and ends");
        return client_error(&err, error);
    }
    if (!reading.stopped)
        audit_check_end(&reading.check);
    *ret = reading.check.report;
    return 0;
}
