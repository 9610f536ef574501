/* Owns the steps of getting an identity and their order, which is what makes a crash at any point
 * cost nothing: the key is on disk before the token is sent, the identity is in place before the
 * token and the pending key go. agent/link_main.c and the link's worker call it. Next:
 * agent/enroll_files.c, common/front_client.c for the orchestrator, common/identity_dir.c. */
#include "agent/enroll-internal.h"
#include "common/csr.h"
#include "common/failpoint.h"
#include "common/file.h"
#include "common/front_client.h"
#include "common/identity_dir.h"
#include "common/log.h"
#include "common/rpc_creds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MACHINE_FILE_MAX 4096u
#define HOSTNAME_MAX     64u /* HOST_NAME_MAX of Linux */
#define CLEANUP_CREDS    CLEANUP(rpc_creds_clear)

static int get_ca(const struct enroll_config *config, char **ret, struct err *err)
{
    size_t size;
    if (config->ca_file && *config->ca_file)
        return file_read(config->ca_file, PEM_MAX, ret, &size, err) < 0
                   ? err_wrap(err, "cannot read the CA to trust")
                   : 0;
    if (config->ca_fingerprint && *config->ca_fingerprint)
        return front_fetch_ca(config->endpoint, config->ca_fingerprint, config->timeout_ms, ret,
                              err);
    return err_set(err, ERR_PRECONDITION,
                   "say which orchestrator to trust: its CA's fingerprint (ca_fingerprint), which "
                   "'sandstorm token create' prints, or a copy of its ca.pem (ca_file)");
}

/* A certificate for an agent, and who that is. */
static int agent_name(const char *certificate, struct identity *ret, struct err *err)
{
    const struct rpc_creds creds = { .cert = (char *)(uintptr_t)certificate };
    int64_t not_after;
    if (rpc_creds_identity(&creds, ret, &not_after, err) < 0)
        return -1;
    if (ret->kind != IDENTITY_AGENT)
        return err_set(err, ERR_PROTOCOL, "the certificate is that of a %s and not of an agent",
                       identity_kind_name(ret->kind));
    return 0;
}

static int check_answer(const char *key, const char *certificate, const char *ca, const char *name,
                        struct err *err)
{
    struct identity identity;
    if (csr_check_answer(key, certificate, ca, err) < 0 ||
        agent_name(certificate, &identity, err) < 0)
        return -1;
    if (strcmp(identity.name, name) != 0)
        return err_set(err, ERR_PROTOCOL,
                       "the orchestrator's certificate is for \"%s\", but should be for \"%s\"",
                       identity.name, name);
    return 0;
}

static int ask(const struct enroll_config *config, const char *token, const char *csr,
               const char *ca, struct front_certificate *ret, struct err *err)
{
    char hostname[HOSTNAME_MAX + 1] = "";
    if (gethostname(hostname, sizeof(hostname)) < 0)
        hostname[0] = '\0'; /* it is for people only */
    hostname[HOSTNAME_MAX] = '\0';
    const struct front_enrolment enrolment = { .token = token,
                                               .csr = csr,
                                               .sandbox_id = config->sandbox_id,
                                               .vm_id = config->vm_id,
                                               .hostname = hostname };
    return front_enroll(config->endpoint, ca, &enrolment, config->timeout_ms, ret, err);
}

/* The identity is in place: whatever fails now is no failure of the enrolment. */
static void tidy(const struct enroll_config *config)
{
    struct err err = { 0 };
    bool found = false;
    if (config->token_file && wipe_file(config->token_file, &found, &err) < 0)
        /* Where systemd hands it over as a credential, for example, it cannot be removed. */
        log_info("the used join token stays where it is", LF_STR("file", config->token_file),
                 LF_ERR(&err));
    failpoint("enroll.token-removed");
    /* Last: as long as it is there, enroll_tidy() knows that there may be something left to do. */
    if (pending_remove(config->identity_dir, &found, &err) < 0)
        log_warn("what the enrolment left behind cannot be removed", LF_ERR(&err));
    failpoint("enroll.pending-removed");
}

int enroll_run(const struct enroll_config *config, struct err *err)
{
    CLEANUP_KEY_PEM char *token = NULL, *key = NULL;
    CLEANUP_FREE char *ca = NULL, *csr = NULL, *json = NULL;
    CLEANUP_PENDING struct pending pending = { 0 };
    CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
    struct machine machine;
    failpoint("enroll.start");
    machine_read(config->root, &machine);
    if (token_read(config, &token, err) < 0 || get_ca(config, &ca, err) < 0 ||
        machine_to_json(&machine, &json, err) < 0 ||
        pending_open(config->identity_dir, &pending, err) < 0 ||
        pending_key(&pending, &machine, &key, &csr, err) < 0 ||
        ask(config, token, csr, ca, &answer, err) < 0)
        return -1;
    failpoint("enroll.answered");
    const struct identity_files files = {
        .ca = answer.ca, .cert = answer.certificate, .key = key, .machine = json
    };
    if (check_answer(key, answer.certificate, answer.ca, answer.name, err) < 0 ||
        identity_dir_write(config->identity_dir, &files, err) < 0)
        return -1;
    failpoint("enroll.installed");
    tidy(config);
    return 0;
}

/* What is in the identity directory. */

static int read_machine(const char *identity_dir, char **ret, struct err *err)
{
    CLEANUP_FREE char *path = NULL;
    size_t size;
    if (asprintf(&path, "%s/machine.json", identity_dir) < 0) {
        path = NULL;
        return err_nomem(err);
    }
    struct err why = { 0 };
    if (file_read(path, MACHINE_FILE_MAX, ret, &size, &why) == 0 || why.code == ERR_NOT_FOUND)
        return 0;
    if (err)
        *err = why;
    return -1;
}

static int look_for_clone(const struct enroll_config *config, const char *name,
                          enum enroll_state *ret, char *words, size_t words_size, struct err *err)
{
    CLEANUP_FREE char *json = NULL;
    struct machine then, now;
    const char *what = NULL;
    if (read_machine(config->identity_dir, &json, err) < 0)
        return -1;
    machine_read(config->root, &now);
    /* Without a description the identity was not made by enrolment, and nobody can tell. */
    if (json && machine_from_json(json, strlen(json), &then, err) < 0)
        return err_wrap(err, "%s/machine.json", config->identity_dir);
    if (json && !machine_same(&then, &now, &what)) {
        *ret = ENROLL_CLONE;
        (void)snprintf(words, words_size,
                       "the identity in %s (%s) was made on another machine: the %s differs",
                       config->identity_dir, name, what);
        return 0;
    }
    *ret = ENROLL_READY;
    (void)snprintf(words, words_size, "this machine is %s", name);
    return 0;
}

int enroll_look(const struct enroll_config *config, enum enroll_state *ret, char *words,
                size_t words_size, struct err *err)
{
    CLEANUP_CREDS struct rpc_creds creds = { 0 };
    struct identity identity;
    struct err why = { 0 };
    if (rpc_creds_load(config->identity_dir, &creds, &why) < 0) {
        if (why.code == ERR_NOT_FOUND || why.sys_errno == ENOENT) {
            *ret = ENROLL_NEEDED;
            (void)snprintf(words, words_size, "there is no identity in %s", config->identity_dir);
            return 0;
        }
        if (err)
            *err = why;
        return -1;
    }
    if (rpc_creds_check(&creds, err) < 0 || agent_name(creds.cert, &identity, err) < 0)
        return err_wrap(err, "the identity in %s is damaged; remove it and enrol again",
                        config->identity_dir);
    return look_for_clone(config, identity.name, ret, words, words_size, err);
}

void enroll_tidy(const struct enroll_config *config)
{
    CLEANUP_CREDS struct rpc_creds creds = { 0 };
    if (rpc_creds_load(config->identity_dir, &creds, NULL) == 0 &&
        pending_has_key(config->identity_dir, creds.key))
        tidy(config);
}

/* Renewal. */

int enroll_install(const char *identity_dir, const char *certificate, const char *ca,
                   struct err *err)
{
    CLEANUP_CREDS struct rpc_creds creds = { 0 };
    CLEANUP_FREE char *json = NULL;
    struct identity identity;
    if (rpc_creds_load(identity_dir, &creds, err) < 0 ||
        agent_name(creds.cert, &identity, err) < 0 ||
        check_answer(creds.key, certificate, ca, identity.name, err) < 0 ||
        read_machine(identity_dir, &json, err) < 0)
        return err_wrap(err, "cannot install the renewed certificate");
    const struct identity_files files = {
        .ca = ca, .cert = certificate, .key = creds.key, .machine = json
    };
    if (identity_dir_write(identity_dir, &files, err) < 0)
        return err_wrap(err, "cannot install the renewed certificate");
    failpoint("renew.installed");
    return 0;
}

int enroll_renew_expired(const struct enroll_config *config, struct err *err)
{
    CLEANUP_CREDS struct rpc_creds creds = { 0 };
    CLEANUP_FREE char *csr = NULL;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
    if (rpc_creds_load(config->identity_dir, &creds, err) < 0 ||
        csr_new(creds.key, &csr, err) < 0 ||
        front_renew(config->endpoint, creds.ca, creds.cert, csr, config->timeout_ms, &answer, err) <
            0)
        return -1;
    failpoint("renew.answered");
    return enroll_install(config->identity_dir, answer.certificate, answer.ca, err);
}

/* Images. */

static void say(bool found, const char *what, const char *path)
{
    (void)printf(found ? "Removed %s: %s\n" : "There is no %s: %s\n", what, path);
}

int enroll_prepare_image(const struct enroll_config *config, const char *status_file,
                         struct err *err)
{
    bool had_identity = access(config->identity_dir, F_OK) == 0, found = false;
    if (identity_dir_remove(config->identity_dir, err) < 0)
        return -1;
    say(had_identity, "identity", config->identity_dir);
    if (pending_remove(config->identity_dir, &found, err) < 0)
        return -1;
    if (found)
        (void)printf("Removed the key of an enrolment that had not ended.\n");
    if (config->token_file) {
        if (wipe_file(config->token_file, &found, err) < 0)
            return -1;
        say(found, "join token", config->token_file);
    }
    if (status_file) {
        if (wipe_file(status_file, &found, err) < 0)
            return -1;
        say(found, "status file", status_file);
    }
    (void)printf("Every machine made from this image enrols by itself, with a key and a token of "
                 "its own. Empty /etc/machine-id before the image is taken, see machine-id(5).\n");
    return 0;
}
