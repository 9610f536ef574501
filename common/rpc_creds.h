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
/* The trust domain that our CA is for. */
int rpc_creds_trust_domain(const struct rpc_creds *creds, char ret[TRUST_DOMAIN_MAX + 1],
                           struct err *err) must_use;

grpc_server_credentials *rpc_creds_server(const struct rpc_creds *creds);
grpc_channel_credentials *rpc_creds_channel(const struct rpc_creds *creds);
