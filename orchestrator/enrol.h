/* Certificates for those who ask: a VM with a join token, a person with a login key, and everybody
 * who has one and needs the next. One request is one transaction of the store, on the store's
 * thread: the secret, the signing request, the audit row and the signature all stand or fall
 * together, so a crash can neither burn a token nor give two certificates for it. Loop thread,
 * unless said otherwise. */
#pragma once

#include "common/rpc_call.h"
#include "orchestrator/store.h"

#define ENROL_CSR_MAX    (16u * 1024)
#define ENROL_CERT_MAX   (16u * 1024)
#define ENROL_LIFETIME_S 86400u        /* of a certificate */
#define ENROL_WINDOW_S   (7u * 86400u) /* in which an expired one may still be renewed */

struct orchestrator;

enum enrol_kind {
    ENROL_JOIN,          /* a join token and a signing request */
    ENROL_LOGIN,         /* a login key and a signing request */
    ENROL_RENEW_EXPIRED, /* a certificate of ours and a signing request by its key */
    ENROL_RENEW,         /* the same over mutual TLS: peer and key are certain */
};

/* Fill it with enrol_new(), the texts with enrol_text(); then it belongs to enrol_submit(). */
struct enrol {
    struct store_job job;
    struct orchestrator *orchestrator;
    enum enrol_kind kind;
    /* What was asked. */
    char *secret, *csr, *certificate;
    char sandbox_id[SANDBOX_ID_MAX + 1]; /* wished for, or "" */
    char vm_id[VM_ID_MAX + 1], hostname[256];
    char source[STORE_ACTOR_MAX]; /* "source/192.0.2.7", or the peer's "agent/web-1" */
    struct identity peer;         /* ENROL_RENEW */
    uint8_t peer_key[STORE_KEY_LEN];
    /* What came out: verdict.code is ERR_NONE, or why not. */
    struct err verdict;
    bool guessing; /* the secret was wrong */
    struct identity identity;
    char *pem;
    int64_t not_after_s;
    bool changed; /* a record below was put into the store */
    struct sandbox_record sandbox;
    struct client_record client;
    struct event_record event;
    /* On the loop's thread, when it is committed; then enrol_free(). */
    void (*done)(struct enrol *enrol);
    void *userdata;
};

int enrol_new(struct orchestrator *orchestrator, enum enrol_kind kind, struct enrol **ret,
              struct err *err) must_use;
/* done() is called in any case. */
void enrol_submit(struct enrol *enrol, void (*done)(struct enrol *enrol), void *userdata);
void enrol_free(struct enrol *enrol);

/* enrol_work.c, on the store's thread. */
int enrol_work(struct store_job *job, struct store_tx *tx, struct err *err);
