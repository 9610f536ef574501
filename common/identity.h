/* Who a peer is: one SPIFFE URI, spiffe://<trust-domain>/agent/<sandbox-id> or .../client/<name>.
 * Exactly that form; anything else is nobody. Pure text, no TLS here. Any thread. */
#pragma once

#include "common/err.h"
#include "common/ids.h"

#define TRUST_DOMAIN_MAX 127
#define SPIFFE_URI_MAX   256
/* Certificates start to be valid this long before they are made, so that a peer whose clock is
 * behind can join. */
#define IDENTITY_BACKDATE_S 300

enum identity_kind {
    IDENTITY_NONE, /* zero-initialised means nobody */
    IDENTITY_AGENT,
    IDENTITY_CLIENT,
    IDENTITY_KIND_COUNT_
};

struct identity {
    enum identity_kind kind;
    char trust_domain[TRUST_DOMAIN_MAX + 1];
    char name[SANDBOX_ID_MAX + 1];
};

const char *identity_kind_name(enum identity_kind kind);
/* Lower-case DNS name: labels of [a-z0-9-] joined by dots. */
int trust_domain_check(const char *text, struct err *err) must_use;
int identity_parse(const char *uri, struct identity *ret, struct err *err) must_use;
int identity_format(const struct identity *identity, char uri[SPIFFE_URI_MAX],
                    struct err *err) must_use;
