/* Renewal of a context's certificate. cli/connect.c calls it before a verb's own call; asks over
 * mutual TLS (client/renew.c), or the front when it is too late for that (common/front_client.c);
 * the answer goes to common/identity_dir.c. */
#include "cli/renew.h"

#include "cli/cli.h"
#include "client/client-internal.h"
#include "common/clock.h"
#include "common/csr.h"
#include "common/front_client.h"
#include "common/identity_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

/* By the orchestrator that the certificate still opens. */
static int ask_orchestrator(const struct context *context, const char *csr, char **ret_cert,
                            char **ret_ca, struct err *err)
{
    const struct sandstorm_client_options options = { .endpoint = context->endpoint,
                                                      .identity_dir = context->identity_dir };
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    struct sandstorm_error error = { 0 };
    if (sandstorm_client_new(&options, &client, &error) < 0)
        return err_set(err, (enum err_code)error.code, "%s", error.text);
    return client_renew(client, csr, ret_cert, ret_ca, err);
}

/* By its front, which looks at the key alone. */
static int ask_front(const struct context *context, const struct rpc_creds *creds, const char *csr,
                     char **ret_cert, char **ret_ca, struct err *err)
{
    CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
    if (front_renew(context->enroll_endpoint, creds->ca, creds->cert, csr, FRONT_TIMEOUT_MS,
                    &answer, err) < 0) {
        (void)err_wrap(err, "the certificate of context \"%s\" has expired and was not renewed",
                       context->name);
        if (err->code != ERR_DENIED && err->code != ERR_UNAUTHENTICATED)
            return -1;
        struct err reason = *err;
        return err_set(err, reason.code,
                       "%.330s; ask an admin for a new login key ('sandstorm client add') and run "
                       "'sandstorm login %s --context %s' with it",
                       reason.text, context->endpoint, context->name);
    }
    *ret_cert = TAKE_PTR(answer.certificate);
    *ret_ca = TAKE_PTR(answer.ca);
    return 0;
}

static int renew(const struct context *context, const struct rpc_creds *creds, bool expired,
                 struct err *err)
{
    CLEANUP_FREE char *csr = NULL, *cert = NULL, *ca = NULL;
    if (csr_new(creds->key, &csr, err) < 0)
        return -1;
    if ((expired ? ask_front(context, creds, csr, &cert, &ca, err)
                 : ask_orchestrator(context, csr, &cert, &ca, err)) < 0)
        return -1;
    const struct identity_files files = { .ca = ca, .cert = cert, .key = creds->key };
    return csr_check_answer(creds->key, cert, ca, err) < 0 ||
                   identity_dir_write(context->identity_dir, &files, err) < 0
               ? -1
               : 0;
}

/* What is there, and whether it is to be renewed now; *ret_due is false when not. */
static int look(const struct context *context, struct rpc_creds *creds, bool *ret_due,
                bool *ret_expired, struct err *err)
{
    struct rpc_creds_times times;
    rpc_creds_clear(creds);
    if (rpc_creds_load(context->identity_dir, creds, err) < 0)
        return -1;
    if (rpc_creds_times(creds, &times, err) < 0)
        return err_wrap(err, "identity directory \"%s\"", context->identity_dir);
    int64_t now = wall_ms();
    *ret_due = now >= times.due_ms;
    *ret_expired = now >= times.end_ms;
    return 0;
}

/* One renewal at a time. Whoever comes second goes on with a certificate that is still good, and
 * waits for the first one otherwise: not longer than its requests may take. */
static int lock(const struct context *context, bool wait, int *ret, struct err *err)
{
    CLEANUP_FD int fd = open(context->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", context->dir);
    int r;
    do
        r = flock(fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno != EWOULDBLOCK)
        return err_errno(err, errno, "cannot lock %s", context->dir);
    *ret = r == 0 ? TAKE_FD(fd) : -1;
    return 0;
}

static int renew_locked(const struct context *context, struct rpc_creds *creds, bool *expired,
                        struct err *err)
{
    CLEANUP_FD int held = -1;
    bool due;
    if (lock(context, *expired, &held, err) < 0)
        return -1;
    if (held < 0)
        return 0;
    /* Somebody else may have done it meanwhile. */
    if (look(context, creds, &due, expired, err) < 0)
        return -1;
    return due ? renew(context, creds, *expired, err) : 0;
}

int renew_if_due(const struct context *context, struct err *err)
{
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    bool due, expired;
    if (look(context, &creds, &due, &expired, err) < 0)
        return -1;
    if (!due || renew_locked(context, &creds, &expired, err) == 0)
        return 0;
    if (expired)
        return -1;
    struct err warning = *err;
    (void)err_wrap(&warning, "the certificate of context \"%s\" could not be renewed yet",
                   context->name);
    cli_complain(warning.text);
    return 0;
}
