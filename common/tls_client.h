/* The client's end of TLS, for those who use OpenSSL themselves: which servers are believed, and a
 * thread that writes to sockets without a signal to its host. Any thread. */
#pragma once

#include "common/rpc_diagnose.h"

#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>

/* Believes a server whose certificate is for endpoint->host and signed by a CA of this PEM text,
 * which may hold several; never the CAs of the system. `ca_pem` NULL: any server. */
int tls_client_context(const struct endpoint *endpoint, const char *ca_pem, SSL_CTX **ret,
                       struct err *err) must_use;
bool tls_client_is_address(const char *host);

/* OpenSSL writes without MSG_NOSIGNAL, and a library may not change how its host treats signals: a
 * SIGPIPE of ours is blocked in this thread and taken back. */
struct sigpipe_guard {
    sigset_t before;
    bool was_pending;
};
void sigpipe_block(struct sigpipe_guard *ret);
void sigpipe_unblock(struct sigpipe_guard *guard);

static inline void tls_client_context_cleanup(SSL_CTX **context)
{
    SSL_CTX_free(*context);
}
#define CLEANUP_SSL_CTX CLEANUP(tls_client_context_cleanup)
