/* Why can I not connect? libgrpc says "Socket closed" to everything from a refused certificate to a
 * wrong clock; this walks the same way by itself (name, TCP, TLS, certificates) and says in words
 * where it ends and what to do. Blocking, up to a few seconds: a worker's job, or a CLI's last act.
 */
#pragma once

#include "common/err.h"
#include "common/rpc_creds.h"

#define ENDPOINT_HOST_MAX 255

struct endpoint {
    char host[ENDPOINT_HOST_MAX + 1]; /* without brackets */
    char port[6];
};

/* HOST:PORT or [IPV6]:PORT. */
int endpoint_parse(const char *text, struct endpoint *ret, struct err *err) must_use;
/* The same host and the port after it: where an orchestrator has its HTTPS front, unless it is told
 * otherwise. */
int endpoint_next(const char *text, char *ret, size_t size, struct err *err) must_use;

/* 0 when a TLS session with both certificates accepted can be had; else err says what is wrong. */
int rpc_diagnose(const char *endpoint, const struct rpc_creds *creds, int timeout_ms,
                 struct err *err) must_use;
/* The same for a server that asks for no certificate (HTTPS); `ca_pem` as in tls_client.h. */
int tls_diagnose(const char *endpoint, const char *ca_pem, int timeout_ms,
                 struct err *err) must_use;
