/* Owns the answer to "whom do we believe at the other end": the CAs of one PEM text and the name we
 * asked for, put into OpenSSL's own verification, so that no byte of ours is sent to anybody else.
 * Asked by common/http_client.c for requests and common/rpc_diagnose.c for explanations. */
#include "common/tls_client.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

bool tls_client_is_address(const char *host)
{
    struct in6_addr any;
    return inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
}

/* Several certificates in one text are all believed; text between and after them is not looked at,
 * as everywhere with PEM. */
static int trust(SSL_CTX *context, const char *ca_pem, struct err *err)
{
    BIO *pem = BIO_new_mem_buf(ca_pem, -1);
    if (!pem)
        return err_nomem(err);
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    unsigned count = 0;
    bool ok = true;
    X509 *one;
    while (ok && (one = PEM_read_bio_X509(pem, NULL, NULL, NULL))) {
        ok = X509_STORE_add_cert(store, one) == 1;
        X509_free(one);
        count++;
    }
    BIO_free(pem);
    unsigned long why = ERR_peek_last_error();
    /* The end of the text is an error to PEM_read_bio_X509(), and the only one that is none. */
    ok = ok && ERR_GET_LIB(why) == ERR_LIB_PEM && ERR_GET_REASON(why) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    if (!ok || count == 0)
        return err_set(err, ERR_INVALID,
                       "the CA file does not hold certificates in PEM form; copy ca.pem from the "
                       "orchestrator again");
    return 0;
}

static int expect_host(SSL_CTX *context, const char *host, struct err *err)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    int ok = tls_client_is_address(host) ? X509_VERIFY_PARAM_set1_ip_asc(param, host)
                                         : X509_VERIFY_PARAM_set1_host(param, host, 0);
    return ok == 1 ? 0 : err_set(err, ERR_INVALID, "\"%s\" is not the name of a host", host);
}

int tls_client_context(const struct endpoint *endpoint, const char *ca_pem, SSL_CTX **ret,
                       struct err *err)
{
    ERR_clear_error();
    CLEANUP_SSL_CTX SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
        return err_nomem(err);
    SSL_CTX_set_verify(context, ca_pem ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    if (ca_pem &&
        (trust(context, ca_pem, err) < 0 || expect_host(context, endpoint->host, err) < 0))
        return -1;
    *ret = TAKE_PTR(context);
    return 0;
}

static void only_sigpipe(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGPIPE);
}

void sigpipe_block(struct sigpipe_guard *ret)
{
    sigset_t pipe_only, pending;
    only_sigpipe(&pipe_only);
    (void)sigpending(&pending);
    ret->was_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &ret->before);
}

void sigpipe_unblock(struct sigpipe_guard *guard)
{
    sigset_t pipe_only;
    const struct timespec now = { 0 };
    only_sigpipe(&pipe_only);
    if (!guard->was_pending)
        (void)sigtimedwait(&pipe_only, NULL, &now);
    (void)pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}
