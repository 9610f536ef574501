/* Key, certificate and CA of one end, as files in one directory: ca.pem, cert.pem, key.pem. Loop
 * thread or main; blocking, small. */
#pragma once

#include "common/err.h"
#include "common/identity.h"
#include "common/rpc_compat.h"

#define PEM_MAX (64u * 1024)

struct rpc_creds {
    char *ca;
    char *cert;
    char *key;
};

/* The three files are read through one open directory, so that a renewal that swaps the directory
 * cannot mix two generations. */
int rpc_creds_load(const char *dir, struct rpc_creds *ret, struct err *err) must_use;
void rpc_creds_clear(struct rpc_creds *creds);
/* Is each file what it should be, and does the key belong to the certificate? Says which is not. */
int rpc_creds_check(const struct rpc_creds *creds, struct err *err) must_use;
/* The SPIFFE identity in our own certificate, and when that certificate ends. */
int rpc_creds_identity(const struct rpc_creds *creds, struct identity *ret, int64_t *ret_not_after,
                       struct err *err) must_use;
/* When our own certificate is to be renewed and when it ends. The first is a point between 60 % and
 * 80 % of its life that follows from the certificate itself: the same whenever it is asked for, and
 * another for each, so that a fleet that was enrolled together does not renew together. That
 * certificates begin in the past (IDENTITY_BACKDATE_S) does not count. */
struct rpc_creds_times {
    int64_t due_ms, end_ms;
};
int rpc_creds_times(const struct rpc_creds *creds, struct rpc_creds_times *ret,
                    struct err *err) must_use;
/* The trust domain that our CA is for. */
int rpc_creds_trust_domain(const struct rpc_creds *creds, char ret[TRUST_DOMAIN_MAX + 1],
                           struct err *err) must_use;

grpc_server_credentials *rpc_creds_server(const struct rpc_creds *creds);
grpc_channel_credentials *rpc_creds_channel(const struct rpc_creds *creds);
