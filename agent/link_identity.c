/* The link's own certificate: enrols when there is none, renews it over the stream's channel at a
 * point between 60 % and 80 % of its life, and over the HTTPS front when it has ended. What
 * blocks is done by the worker (agent/enroll.c). A renewed certificate is put to use by a second
 * stream that takes over from the first (agent/link_stream.c), so that no command notices. */
#include "agent/link-internal.h"

#include "common/clock.h"
#include "common/csr.h"
#include "common/failpoint.h"
#include "common/wire.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <stdio.h>
#include <string.h>

#define RENEW_METHOD      "/sandstorm.v1.IdentityService/RenewCertificate"
#define RENEW_DEADLINE_US 20000000u
#define RENEW_RETRY_MS    5000      /* at least, after an attempt that failed */
#define LOOK_MS           3600000   /* clocks jump: look again at least this often */
#define LATE_EVERY_US     60000000u /* over HTTPS, after an answer and before the next question */

/* Who we are. */

/* Who we are is what our certificate says; a configured id that differs is a mistake to name. */
static int load_identity(struct link *link, struct err *err)
{
    const struct enroll_config *config = link->config.enroll;
    struct rpc_creds creds;
    int64_t not_after = 0;
    if (rpc_creds_load(config->identity_dir, &creds, err) < 0)
        return -1;
    int r = rpc_creds_check(&creds, err);
    if (r == 0)
        r = rpc_creds_identity(&creds, &link->identity, &not_after, err);
    rpc_creds_clear(&creds);
    if (r < 0)
        return err_wrap(err, "%s", config->identity_dir);
    if (link->identity.kind != IDENTITY_AGENT)
        return err_set(err, ERR_INVALID,
                       "%s holds a %s certificate; the agent needs its own, from "
                       "'sandstorm-agent enroll'",
                       config->identity_dir, identity_kind_name(link->identity.kind));
    const char *wanted = config->sandbox_id;
    if (wanted && *wanted && strcmp(wanted, link->identity.name) != 0)
        return err_set(err, ERR_INVALID,
                       "SANDSTORM_SANDBOX_ID is \"%s\" but the certificate in %s is for \"%s\"; "
                       "correct it, or enrol again with a token for \"%s\"",
                       wanted, config->identity_dir, link->identity.name, wanted);
    link->own.not_after_ms = not_after * 1000;
    link->own.renew_at_ms = 0; /* to be chosen */
    return 0;
}

/* Certificates live by the orchestrator's clock; ours may be wrong by hours. */
static int64_t now_ms(const struct link *link)
{
    return wall_ms() - (link->stream.clock_known ? link->stream.clock_skew_ms : 0);
}

bool link_identity_expired(const struct link *link)
{
    return link->own.not_after_ms && link->own.not_after_ms < now_ms(link);
}

/* Work that blocks, on the worker. */

static void work(struct worker_job *job)
{
    struct link_identity *own = CONTAINER_OF(job, struct link_identity, job);
    const struct enroll_config *config = CONTAINER_OF(own, struct link, own)->config.enroll;
    switch (own->task) {
    case TASK_ENROLL:
        own->result = enroll_run(config, &own->err);
        break;
    case TASK_INSTALL:
        own->result = enroll_install(config->identity_dir, own->certificate, own->ca, &own->err);
        break;
    case TASK_RENEW_LATE:
        own->result = enroll_renew_expired(config, &own->err);
        break;
    default:
        break;
    }
}

static void work_done(struct worker_job *job);

static int start_task(struct link *link, enum identity_task task, struct err *err)
{
    struct link_identity *own = &link->own;
    own->job.work = work;
    own->job.done = work_done;
    own->task = task;
    if (worker_submit(link->worker, &own->job, err) < 0) {
        own->task = TASK_NONE;
        return -1;
    }
    return 0;
}

/* Enrolling. */

static bool has_token(const struct enroll_config *config)
{
    return config->token_file && *config->token_file && access(config->token_file, R_OK) == 0;
}

/* Not enrolled yet, and waiting for the next attempt. */
static void enroll_later(struct link *link, const struct err *why)
{
    link->own.task = TASK_ENROLL; /* what the status says, and what the timer begins */
    link_retry_report(link, why);
    uint64_t delay_us = backoff_next_us(&link->own.backoff, random_u64());
    loop_timer_start(link->own.timer, delay_us);
    link_retry_planned(link, delay_us);
}

static void try_enroll(struct link *link)
{
    struct err err;
    link_retry_begin(link);
    if (start_task(link, TASK_ENROLL, &err) < 0)
        enroll_later(link, &err);
    link_say_status(link);
}

static void enrolled(struct link *link)
{
    struct link_identity *own = &link->own;
    struct err err = own->err;
    if (own->result == 0 && load_identity(link, &err) == 0) {
        log_info("enrolled", LF_STR("sandbox", link->identity.name),
                 LF_STR("endpoint", link->config.enroll->endpoint));
        link_retry_clear(link);
        link_stream_start(link);
        return;
    }
    /* The orchestrator may be away, or the token may be replaced by a good one: try again. */
    enroll_later(link, &err);
}

/* Renewing over the stream's own channel. */

/* Whatever the clocks say, a certificate that is new is given a rest. */
static void plan(struct link *link)
{
    const struct link_identity *own = &link->own;
    int64_t delay_ms = MIN(MAX(own->renew_at_ms - now_ms(link), 0), LOOK_MS);
    uint64_t delay_us = (uint64_t)delay_ms * 1000;
    uint64_t rested_us = own->renewed_us ? monotonic_us() - own->renewed_us : own->rest_us;
    if (rested_us < own->rest_us)
        delay_us = MAX(delay_us, own->rest_us - rested_us);
    loop_timer_start(own->timer, delay_us);
}

/* A tenth of what is left, so that there are several more attempts, spread over the fleet. */
static void plan_retry(struct link *link)
{
    int64_t now = now_ms(link);
    int64_t left = MAX(link->own.not_after_ms - now, 0);
    int64_t delay = MAX(left / 10, RENEW_RETRY_MS);
    link->own.renew_at_ms = now + delay / 2 + (int64_t)(random_u64() % (uint64_t)delay);
    plan(link);
}

static void renewal_failed(struct link *link, const struct err *why)
{
    log_warn("the certificate could not be renewed yet", LF_ERR(why));
    plan_retry(link);
}

static void renew_message(void *owner, const uint8_t *data, size_t size)
{
    struct link *link = owner;
    struct link_identity *own = &link->own;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (own->certificate || wire_unpack(&sandstorm__v1__renew_certificate_response__descriptor,
                                        data, size, &message, &own->err) < 0)
        return;
    const Sandstorm__V1__RenewCertificateResponse *answer =
        (const Sandstorm__V1__RenewCertificateResponse *)message;
    own->certificate = strdup(answer->certificate_pem);
    own->ca = strdup(answer->ca_pem);
}

static void forget_answer(struct link_identity *own)
{
    free(TAKE_PTR(own->certificate));
    free(TAKE_PTR(own->ca));
}

static void renew_closed(void *owner, const struct err *status)
{
    struct link *link = owner;
    struct link_identity *own = &link->own;
    struct err err = *status;
    rpc_call_release(TAKE_PTR(own->call));
    if (err.code == ERR_NONE && (!own->certificate || !own->ca))
        (void)err_set(&err, ERR_PROTOCOL, "the orchestrator sent no certificate");
    if (err.code == ERR_NONE) {
        failpoint("renew.answered");
        if (start_task(link, TASK_INSTALL, &err) == 0)
            return;
    }
    forget_answer(own);
    renewal_failed(link, &err);
}

static void renew_half_closed(void *owner)
{
    (void)owner;
}

static const struct rpc_call_handler renew_handler = {
    .message = renew_message,
    .half_closed = renew_half_closed,
    .closed = renew_closed,
};

static int ask(struct link *link, struct err *err)
{
    struct link_identity *own = &link->own;
    CLEANUP_FREE char *csr = NULL;
    struct rpc_creds creds;
    if (rpc_creds_load(link->config.enroll->identity_dir, &creds, err) < 0)
        return -1;
    int r = csr_new(creds.key, &csr, err);
    rpc_creds_clear(&creds);
    if (r < 0 || rpc_channel_call(link->stream.current->channel, RENEW_METHOD, RENEW_DEADLINE_US,
                                  &renew_handler, link, &own->call, err) < 0)
        return -1;
    Sandstorm__V1__RenewCertificateRequest request = SANDSTORM__V1__RENEW_CERTIFICATE_REQUEST__INIT;
    request.csr_pem = csr;
    if (rpc_call_send(own->call, &request.base, err) < 0) {
        rpc_call_release(TAKE_PTR(own->call));
        return -1;
    }
    rpc_call_finish(own->call, NULL);
    return 0;
}

static void installed(struct link *link)
{
    struct link_identity *own = &link->own;
    struct err err = own->err;
    forget_answer(own);
    if (own->result < 0 || load_identity(link, &err) < 0) {
        renewal_failed(link, &err);
        return;
    }
    log_info("certificate renewed", LF_STR("sandbox", link->identity.name));
    own->renewed_us = monotonic_us();
    link_stream_hand_over(link);
}

/* When: at the certificate's own point, unless an attempt has failed since. */
void link_identity_connected(struct link *link)
{
    struct link_identity *own = &link->own;
    struct rpc_creds creds;
    struct rpc_creds_times times = { 0 };
    struct err err;
    if (own->call || own->task != TASK_NONE)
        return;
    int r = rpc_creds_load(link->config.enroll->identity_dir, &creds, &err);
    if (r == 0) {
        r = rpc_creds_times(&creds, &times, &err);
        rpc_creds_clear(&creds);
    }
    if (r < 0) {
        renewal_failed(link, &err);
        return;
    }
    if (own->renew_at_ms == 0 || own->not_after_ms != times.end_ms)
        own->renew_at_ms = times.due_ms;
    own->not_after_ms = times.end_ms;
    own->rest_us = (uint64_t)(times.end_ms - times.due_ms) / 4 * 1000;
    plan(link);
}

void link_identity_disconnected(struct link *link)
{
    loop_timer_stop(link->own.timer);
    rpc_call_release(TAKE_PTR(link->own.call));
    if (link->own.task != TASK_INSTALL)
        forget_answer(&link->own);
}

static void on_timer(void *userdata)
{
    struct link *link = userdata;
    struct link_identity *own = &link->own;
    struct err err;
    if (own->task == TASK_ENROLL) {
        own->task = TASK_NONE;
        try_enroll(link);
    } else if (link->stream.state != STREAM_ACTIVE || own->task != TASK_NONE || own->call) {
        return;
    } else if (now_ms(link) < own->renew_at_ms) {
        plan(link);
    } else if (ask(link, &err) < 0) {
        renewal_failed(link, &err);
    }
}

/* Renewing over HTTPS, after the end. */

bool link_identity_renew_late(struct link *link)
{
    struct link_identity *own = &link->own;
    struct err err;
    if (link->stopping || own->task != TASK_NONE ||
        (own->late_us && monotonic_us() - own->late_us < LATE_EVERY_US))
        return false;
    return start_task(link, TASK_RENEW_LATE, &err) == 0;
}

/* The stream may have come about while the worker was busy; then nothing is planned yet. */
static void plan_if_active(struct link *link)
{
    if (link->stream.state == STREAM_ACTIVE)
        link_identity_connected(link);
}

static void renewed_late(struct link *link)
{
    struct link_identity *own = &link->own;
    struct err err = own->err;
    bool final = own->result < 0 && (err.code == ERR_DENIED || err.code == ERR_UNAUTHENTICATED);
    /* An answer holds for a while, whatever the clocks say. Where nobody answered, the stream's
     * backoff says when to ask again: an orchestrator that was away may be back in a second. */
    if (own->result == 0 || final)
        own->late_us = monotonic_us();
    if (own->result == 0 && load_identity(link, &err) == 0) {
        log_info("certificate renewed after its end", LF_STR("sandbox", link->identity.name));
        own->renewed_us = monotonic_us();
        link_retry_after(link, 0);
        plan_if_active(link);
        return;
    }
    plan_if_active(link);
    if (link->stream.state == STREAM_ACTIVE)
        return;
    link_retry_report(link, &err);
    /* Somebody has left a new token here: that is what it is for. */
    if (final && has_token(link->config.enroll)) {
        try_enroll(link);
        return;
    }
    link_retry_after(link,
                     final ? LATE_EVERY_US : backoff_next_us(&link->stream.backoff, random_u64()));
}

static void work_done(struct worker_job *job)
{
    struct link_identity *own = CONTAINER_OF(job, struct link_identity, job);
    struct link *link = CONTAINER_OF(own, struct link, own);
    enum identity_task task = own->task;
    own->task = TASK_NONE;
    if (link->stopping) {
        forget_answer(own);
        return;
    }
    if (task == TASK_ENROLL)
        enrolled(link);
    else if (task == TASK_INSTALL)
        installed(link);
    else
        renewed_late(link);
}

/* Life. */

int link_identity_init(struct link *link, struct err *err)
{
    struct link_identity *own = &link->own;
    const struct enroll_config *config = link->config.enroll;
    enum enroll_state state;
    char words[ERR_TEXT_MAX];
    backoff_init(&own->backoff);
    if (loop_timer_new(link->loop, on_timer, link, &own->timer, err) < 0 ||
        enroll_look(config, &state, words, sizeof(words), err) < 0)
        return -1;
    if (state == ENROLL_READY) {
        enroll_tidy(config);
        return load_identity(link, err);
    }
    if (state == ENROLL_CLONE)
        log_warn("this VM is a copy of another one; its identity is not used",
                 LF_STR("reason", words));
    if (!has_token(config))
        return err_set(
            err, ERR_PRECONDITION,
            "%s, and there is no join token (%s). Make one with 'sandstorm token create' "
            "and run 'sandstorm-agent enroll', or put it into that file",
            words,
            config->token_file && *config->token_file ? config->token_file
                                                      : "token_file is not set");
    own->task = TASK_ENROLL;
    return 0;
}

void link_identity_start(struct link *link)
{
    if (link->own.task != TASK_ENROLL) {
        link_stream_start(link);
        return;
    }
    link->own.task = TASK_NONE;
    try_enroll(link);
}

void link_identity_done(struct link *link)
{
    rpc_call_release(link->own.call);
    forget_answer(&link->own);
    loop_timer_free(link->own.timer);
}
