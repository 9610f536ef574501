/* A whole Sandstorm in a private directory, from the real binaries: an orchestrator on a port of
 * its own with a fresh CA, and any number of sandboxes, each a link and a runner as ordinary
 * processes. Nothing of it survives cluster_free(), nor the death of the caller. One thread. */
#pragma once

#include "tests/harness/service.h"

#define CLUSTER_SANDBOXES_MAX 64u
#define CLUSTER_PATH_MAX      108u /* a unix socket's path must fit too */

struct sandbox_processes {
    char name[32];
    char identity[CLUSTER_PATH_MAX]; /* made by the link when it enrols, at its first start */
    char socket[CLUSTER_PATH_MAX];
    char token[CLUSTER_PATH_MAX];           /* the file with its join token */
    char status[CLUSTER_PATH_MAX];          /* what `sandstorm-agent status` reads */
    char runner_settings[CLUSTER_PATH_MAX]; /* empty at first; read at the runner's next start */
    char runner_state[CLUSTER_PATH_MAX];
    struct service *runner, *link;
};

struct cluster {
    char dir[CLUSTER_PATH_MAX];
    char state_dir[CLUSTER_PATH_MAX];
    char admin[CLUSTER_PATH_MAX];    /* the admin's client identity */
    char settings[CLUSTER_PATH_MAX]; /* the orchestrator's settings file */
    char fingerprint[80];            /* of the CA */
    char host[48];                   /* where it listens, and everybody finds it */
    const char *const *agent_prefix; /* NULL, or what stands before the programs of a sandbox */
    int port, http_port;             /* 0 before the first start */
    bool keep_dir;
    struct service *orchestrator;
    struct sandbox_processes sandboxes[CLUSTER_SANDBOXES_MAX];
    unsigned sandbox_count;
};

struct cluster_config {
    const char *dir;      /* NULL: a new one in /tmp. Made here. */
    bool keep_dir;        /* cluster_free() does not remove it */
    int port;             /* the one to try first; any free one where it is taken, or for 0 */
    const char *settings; /* NULL, or the text of the orchestrator's settings file */
    const char *host;     /* the address to listen on; NULL: 127.0.0.1 */
    /* NULL, or NULL-ended: the command by which a sandbox's daemons are started, for another
     * namespace. Stays the caller's. */
    const char *const *agent_prefix;
};

/* Makes the directory, the CA and the identities; starts nothing. */
int cluster_new(const struct cluster_config *config, struct cluster **ret,
                struct err *err) must_use;
/* Stops what runs, in order. -1 when one of the daemons did not end well; the rest is stopped all
 * the same. */
int cluster_stop(struct cluster *cluster, struct err *err) must_use;
/* Kills what still runs, and removes the directory. */
void cluster_free(struct cluster *cluster);

/* Starts it and waits until it serves; after the first time on the same port. */
int cluster_start_orchestrator(struct cluster *cluster, struct err *err) must_use;
/* Makes a join token and prepares both daemons; starts nothing. The link enrols when it starts. */
int cluster_add_sandbox(struct cluster *cluster, const char *name, struct sandbox_processes **ret,
                        struct err *err) must_use;
/* The daemons of a sandbox, each until it is ready; the link until it is online. */
int sandbox_start_runner(struct sandbox_processes *sandbox, struct err *err) must_use;
int sandbox_start_link(struct sandbox_processes *sandbox, struct err *err) must_use;
int sandbox_wait_online(struct sandbox_processes *sandbox, struct err *err) must_use;
/* cluster_add_sandbox() and both daemons. */
int cluster_start_sandbox(struct cluster *cluster, const char *name, struct sandbox_processes **ret,
                          struct err *err) must_use;
/* A join token for that sandbox, with these options of `token create` on top (NULL-ended, or NULL),
 * in the file DIR/`out`. */
int cluster_token(struct cluster *cluster, const char *out, const char *const *options,
                  struct err *err) must_use;
/* `sandstorm-agent enroll`: an identity for that sandbox in DIR/`out`, without a daemon. */
int cluster_enroll(struct cluster *cluster, const char *name, const char *out,
                   struct err *err) must_use;
/* `client add` and `login`: a client of that role, held to that scope (NULL: none). Its identity is
 * written to `ret`, a path. */
int cluster_login(struct cluster *cluster, const char *name, const char *role, const char *scope,
                  char ret[CLUSTER_PATH_MAX], struct err *err) must_use;

/* One of our programs by name: its path. */
const char *cluster_program(const char *name);
/* Asks for the CA's fingerprint again, after a rotation. */
int cluster_read_fingerprint(struct cluster *cluster, struct err *err) must_use;
/* HOST:PORT of the orchestrator. */
void cluster_endpoint(const struct cluster *cluster, char *out, size_t size);

/* The command line client, as the admin, with these arguments (NULL-ended, without argv[0]). */
int cluster_cli(const struct cluster *cluster, const char *const *arguments, const void *input,
                size_t input_size, uint64_t timeout_us, struct proc_result *ret,
                struct err *err) must_use;
int cluster_cli_start(const struct cluster *cluster, const char *const *arguments, int in, int out,
                      int errors, struct proc **ret, struct err *err) must_use;

/* Removes a directory and everything in it. */
void cluster_remove_dir(const char *dir);

static inline void cluster_cleanup(struct cluster **cluster)
{
    cluster_free(*cluster);
}
#define CLEANUP_CLUSTER CLEANUP(cluster_cleanup)
