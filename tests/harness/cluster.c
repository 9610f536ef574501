/* The whole system from its binaries. Used by the fixture of the integration tests
 * (tests/harness/fixture.c) and by sandstorm-up (dev/up.c); next: tests/harness/service.c. */
#include "tests/harness/cluster.h"

#include "common/file.h"
#include "tests/harness/leftovers.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CLI_ARGUMENTS_MAX 64u
/* Of the orchestrator's argv. */
#define LISTEN_ARGUMENT      3u
#define HTTP_LISTEN_ARGUMENT 5u

static const struct {
    const char *name, *folder, *path;
} programs[] = {
    { "sandstorm", "cli", HARNESS_CLI },
    { "sandstorm-agent", "agent", HARNESS_AGENT },
    { "sandstorm-runner", "agent", HARNESS_RUNNER },
    { "sandstorm-orchestrator", "orchestrator", HARNESS_ORCHESTRATOR },
    { "sandstorm-fleet-sim", "bench", HARNESS_FLEET_SIM },
};

const char *cluster_program(const char *name)
{
    /* Another build of the same programs, for a sanitizer that Criterion does not live with. Not of
     * the runner: it has one thread, and clones in a way that ThreadSanitizer does not live with.
     */
    const char *other = getenv("SANDSTORM_TEST_BUILD");
    static char paths[ELEMENTS(programs)][512];
    for (size_t i = 0; i < ELEMENTS(programs); i++) {
        if (strcmp(programs[i].name, name) != 0)
            continue;
        if (!other || strcmp(name, "sandstorm-runner") == 0)
            return programs[i].path;
        (void)snprintf(paths[i], sizeof(paths[i]), "%s/%s/%s", other, programs[i].folder, name);
        return paths[i];
    }
    return name;
}

/* Files. */

static int join(char out[CLUSTER_PATH_MAX], const char *dir, const char *name, struct err *err)
{
    int n = snprintf(out, CLUSTER_PATH_MAX, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= CLUSTER_PATH_MAX)
        return err_set(err, ERR_INVALID, "the path %s/%s is too long; set TMPDIR to a short one",
                       dir, name);
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void cluster_remove_dir(const char *dir)
{
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int make_dir(struct cluster *cluster, const char *wanted, struct err *err)
{
    if (wanted) {
        (void)snprintf(cluster->dir, sizeof(cluster->dir), "%s", wanted);
        if (mkdir(cluster->dir, 0700) < 0) {
            cluster->dir[0] = '\0';
            return err_errno(err, errno, "cannot create the directory %s", wanted);
        }
        return 0;
    }
    char made[] = "/tmp/sandstorm-XXXXXX";
    if (!mkdtemp(made))
        return err_errno(err, errno, "cannot create a directory in /tmp");
    (void)snprintf(cluster->dir, sizeof(cluster->dir), "%s", made);
    return 0;
}

/* The orchestrator's other verbs. */

static int run_with(const char *const *argv, const char *const *env, struct err *err)
{
    const struct proc_spec spec = { .argv = argv, .env = env };
    CLEANUP_RESULT struct proc_result result = { 0 };
    if (proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &result, err) < 0)
        return -1;
    if (result.status != 0)
        return err_set(err, ERR_INTERNAL, "%s %s failed with %d: %s", argv[0], argv[1],
                       result.status, result.err);
    return 0;
}

static int run_verb(const char *const *argv, struct err *err)
{
    return run_with(argv, NULL, err);
}

int cluster_read_fingerprint(struct cluster *cluster, struct err *err)
{
    const struct proc_spec spec = {
        .argv = (const char *[]){ cluster_program("sandstorm-orchestrator"), "fingerprint",
                                  "--state-dir", cluster->state_dir, NULL },
    };
    CLEANUP_RESULT struct proc_result result = { 0 };
    if (proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &result, err) < 0)
        return -1;
    if (result.status != 0)
        return err_set(err, ERR_INTERNAL, "no fingerprint: %s", result.err);
    (void)snprintf(cluster->fingerprint, sizeof(cluster->fingerprint), "%.*s",
                   (int)strcspn(result.out, "\n"), result.out);
    return 0;
}

/* Life. */

static void endpoint_of(const struct cluster *cluster, int port, char *out, size_t size)
{
    (void)snprintf(out, size, "%s:%d", cluster->host, port);
}

static int prepare(struct cluster *cluster, const struct cluster_config *config, struct err *err)
{
    if (make_dir(cluster, config->dir, err) < 0 ||
        join(cluster->state_dir, cluster->dir, "state", err) < 0 ||
        join(cluster->admin, cluster->dir, "state/clients/admin", err) < 0)
        return -1;
    char listen[64], http[64];
    const char *settings = config->settings ? config->settings : "";
    endpoint_of(cluster, config->port, listen, sizeof(listen));
    endpoint_of(cluster, config->port ? config->port + 1 : 0, http, sizeof(http));
    const struct service_config service = {
        .name = "orchestrator",
        .dir = cluster->dir,
        .argv = (const char *[]){ cluster_program("sandstorm-orchestrator"), "serve", "--listen",
                                  listen, "--http-listen", http, "--state-dir", cluster->state_dir,
                                  "--config", cluster->settings, NULL },
    };
    if (join(cluster->settings, cluster->dir, "orchestrator.yaml", err) < 0 ||
        file_write_atomic(cluster->settings, settings, strlen(settings), 0600, err) < 0 ||
        service_new(&service, &cluster->orchestrator, err) < 0 ||
        run_verb((const char *[]){ cluster_program("sandstorm-orchestrator"), "init", "--state-dir",
                                   cluster->state_dir, config->host ? "--name" : NULL, config->host,
                                   NULL },
                 err) < 0)
        return -1;
    return cluster_read_fingerprint(cluster, err);
}

int cluster_new(const struct cluster_config *config, struct cluster **ret, struct err *err)
{
    struct cluster *cluster = calloc(1, sizeof(*cluster));
    if (!cluster)
        return err_nomem(err);
    cluster->keep_dir = config->keep_dir;
    cluster->agent_prefix = config->agent_prefix;
    (void)snprintf(cluster->host, sizeof(cluster->host), "%s",
                   config->host ? config->host : "127.0.0.1");
    if (prepare(cluster, config, err) < 0) {
        cluster_free(cluster);
        return -1;
    }
    *ret = cluster;
    return 0;
}

static int stop(struct service *service, struct err *err)
{
    if (!service || !service_proc(service))
        return 0;
    /* One that was stopped by SIGSTOP would never see the SIGTERM; one that has ended says how. */
    struct err gone;
    if (service_signal(service, SIGCONT, &gone) == 0 || gone.sys_errno == ESRCH)
        return service_stop(service, err);
    return err_set(err, ERR_INTERNAL, "%s", gone.text);
}

int cluster_stop(struct cluster *cluster, struct err *err)
{
    struct err more;
    int r = 0;
    /* The first thing that went wrong is the one to tell. */
    for (unsigned i = 0; i < cluster->sandbox_count; i++) {
        if (stop(cluster->sandboxes[i].link, r ? &more : err) < 0)
            r = -1;
        if (stop(cluster->sandboxes[i].runner, r ? &more : err) < 0)
            r = -1;
    }
    if (stop(cluster->orchestrator, r ? &more : err) < 0)
        r = -1;
    return r;
}

void cluster_free(struct cluster *cluster)
{
    if (!cluster)
        return;
    for (unsigned i = 0; i < cluster->sandbox_count; i++) {
        service_free(cluster->sandboxes[i].link);
        service_free(cluster->sandboxes[i].runner);
        leftovers_remove(cluster->sandboxes[i].socket);
    }
    service_free(cluster->orchestrator);
    if (*cluster->dir && !cluster->keep_dir)
        cluster_remove_dir(cluster->dir);
    free(cluster);
}

void cluster_endpoint(const struct cluster *cluster, char *out, size_t size)
{
    endpoint_of(cluster, cluster->port, out, size);
}

static int start_listening(struct cluster *cluster, struct err *err)
{
    static const char serving[] = "serving on port ";
    struct service *service = cluster->orchestrator;
    if (service_start(service, err) < 0 || service_wait_ready(service, PROC_DEADLINE_US, err) < 0 ||
        service_wait_status(service, serving, PROC_DEADLINE_US, err) < 0)
        return -1;
    char *rest;
    cluster->port = (int)strtol(service_status(service) + sizeof(serving) - 1, &rest, 10);
    static const char enrolment[] = ", enrolment on port ";
    if (strncmp(rest, enrolment, sizeof(enrolment) - 1) != 0)
        return err_set(err, ERR_INTERNAL, "it says \"%s\"", service_status(service));
    cluster->http_port = (int)strtol(rest + sizeof(enrolment) - 1, NULL, 10);
    return 0;
}

int cluster_start_orchestrator(struct cluster *cluster, struct err *err)
{
    struct err ended;
    if (cluster->port > 0) {
        char listen[64], http[64];
        cluster_endpoint(cluster, listen, sizeof(listen));
        endpoint_of(cluster, cluster->http_port, http, sizeof(http));
        if (service_set_argument(cluster->orchestrator, LISTEN_ARGUMENT, listen, err) < 0 ||
            service_set_argument(cluster->orchestrator, HTTP_LISTEN_ARGUMENT, http, err) < 0)
            return -1;
        return start_listening(cluster, err);
    }
    if (start_listening(cluster, err) == 0)
        return 0;
    /* The port that was wished for may be somebody else's. */
    char any[64];
    endpoint_of(cluster, 0, any, sizeof(any));
    if (service_stop(cluster->orchestrator, &ended) == 0 ||
        service_set_argument(cluster->orchestrator, LISTEN_ARGUMENT, any, err) < 0 ||
        service_set_argument(cluster->orchestrator, HTTP_LISTEN_ARGUMENT, any, err) < 0)
        return -1;
    return start_listening(cluster, err);
}

/* Sandboxes. */

/* What an agent needs to know, as its environment. */
#define AGENT_ENV_MAX 9u
struct agent_env {
    char texts[AGENT_ENV_MAX][CLUSTER_PATH_MAX + 64];
    const char *list[AGENT_ENV_MAX + 1];
};

static void fill_agent_env(const struct cluster *cluster, const struct sandbox_processes *sandbox,
                           struct agent_env *ret)
{
    char endpoint[64], front[64];
    cluster_endpoint(cluster, endpoint, sizeof(endpoint));
    endpoint_of(cluster, cluster->http_port, front, sizeof(front));
    const char *const pairs[][2] = {
        { "SANDSTORM_RUNNER_SOCKET", sandbox->socket },
        { "SANDSTORM_IDENTITY", sandbox->identity },
        { "SANDSTORM_TOKEN_FILE", sandbox->token },
        { "SANDSTORM_STATUS_FILE", sandbox->status },
        { "SANDSTORM_CA_FINGERPRINT", cluster->fingerprint },
        { "SANDSTORM_ORCHESTRATOR_ENDPOINT", endpoint },
        { "SANDSTORM_ENROLL_ENDPOINT", front },
    };
    *ret = (struct agent_env){ 0 };
    for (size_t i = 0; i < ELEMENTS(pairs); i++) {
        (void)snprintf(ret->texts[i], sizeof(ret->texts[i]), "%s=%s", pairs[i][0], pairs[i][1]);
        ret->list[i] = ret->texts[i];
    }
}

/* The program of a sandbox, below what leads into its namespace. */
#define AGENT_ARGV_MAX 10u
static void agent_argv(const struct cluster *cluster, const char *program, const char *settings,
                       const char *ret[AGENT_ARGV_MAX])
{
    unsigned count = 0;
    for (const char *const *word = cluster->agent_prefix; word && *word; word++)
        if (count < AGENT_ARGV_MAX - 4)
            ret[count++] = *word;
    ret[count++] = cluster_program(program);
    if (settings) {
        ret[count++] = "--config";
        ret[count++] = settings;
    }
    ret[count] = NULL;
}

static int make_daemons(struct cluster *cluster, struct sandbox_processes *sandbox, struct err *err)
{
    char name[64], socket[160], state[160];
    const char *argv[AGENT_ARGV_MAX];
    struct agent_env env;
    if (file_write_atomic(sandbox->runner_settings, "", 0, 0600, err) < 0)
        return -1;
    agent_argv(cluster, "sandstorm-runner", sandbox->runner_settings, argv);
    (void)snprintf(socket, sizeof(socket), "SANDSTORM_RUNNER_SOCKET=%s", sandbox->socket);
    (void)snprintf(state, sizeof(state), "SANDSTORM_RUNNER_STATE_DIR=%s", sandbox->runner_state);
    struct service_config config = {
        .name = name,
        .dir = cluster->dir,
        .argv = argv,
        .env = (const char *[]){ socket, state, NULL },
    };
    (void)snprintf(name, sizeof(name), "%s-runner", sandbox->name);
    if (service_new(&config, &sandbox->runner, err) < 0)
        return -1;
    (void)snprintf(name, sizeof(name), "%s-link", sandbox->name);
    fill_agent_env(cluster, sandbox, &env);
    agent_argv(cluster, "sandstorm-agent", NULL, argv);
    config.env = env.list;
    return service_new(&config, &sandbox->link, err);
}

int cluster_token(struct cluster *cluster, const char *out, const char *const *options,
                  struct err *err)
{
    const char *arguments[CLI_ARGUMENTS_MAX + 1] = { "token", "create", "--out" };
    char path[CLUSTER_PATH_MAX];
    unsigned count = 3;
    if (join(path, cluster->dir, out, err) < 0)
        return -1;
    arguments[count++] = path;
    for (; options && *options && count < CLI_ARGUMENTS_MAX; options++)
        arguments[count++] = *options;
    CLEANUP_RESULT struct proc_result result = { 0 };
    if (cluster_cli(cluster, arguments, NULL, 0, PROC_DEADLINE_US, &result, err) < 0)
        return -1;
    if (result.status != 0)
        return err_set(err, ERR_INTERNAL, "token create failed with %d: %s", result.status,
                       result.err);
    return 0;
}

static int name_files(const struct cluster *cluster, const char *name,
                      struct sandbox_processes *sandbox, struct err *err)
{
    char file[64];
    (void)snprintf(sandbox->name, sizeof(sandbox->name), "%s", name);
    (void)snprintf(file, sizeof(file), "%s.sock", name);
    if (join(sandbox->identity, cluster->dir, name, err) < 0 ||
        join(sandbox->socket, cluster->dir, file, err) < 0)
        return -1;
    (void)snprintf(file, sizeof(file), "%s.token", name);
    if (join(sandbox->token, cluster->dir, file, err) < 0)
        return -1;
    (void)snprintf(file, sizeof(file), "%s.runner", name);
    if (join(sandbox->runner_state, cluster->dir, file, err) < 0)
        return -1;
    (void)snprintf(file, sizeof(file), "%s-runner.yaml", name);
    if (join(sandbox->runner_settings, cluster->dir, file, err) < 0)
        return -1;
    (void)snprintf(file, sizeof(file), "%s.status", name);
    return join(sandbox->status, cluster->dir, file, err);
}

static int token_for(struct cluster *cluster, const char *name, struct err *err)
{
    char file[64];
    (void)snprintf(file, sizeof(file), "%s.token", name);
    return cluster_token(cluster, file, (const char *[]){ "--sandbox", name, NULL }, err);
}

int cluster_enroll(struct cluster *cluster, const char *name, const char *out, struct err *err)
{
    struct sandbox_processes sandbox = { 0 };
    struct agent_env env;
    if (name_files(cluster, name, &sandbox, err) < 0 ||
        join(sandbox.identity, cluster->dir, out, err) < 0 || token_for(cluster, name, err) < 0)
        return -1;
    fill_agent_env(cluster, &sandbox, &env);
    return run_with((const char *[]){ cluster_program("sandstorm-agent"), "enroll", NULL },
                    env.list, err);
}

int cluster_add_sandbox(struct cluster *cluster, const char *name, struct sandbox_processes **ret,
                        struct err *err)
{
    if (cluster->port == 0)
        return err_set(err, ERR_PRECONDITION,
                       "start the orchestrator first: its port is not known");
    if (cluster->sandbox_count == CLUSTER_SANDBOXES_MAX)
        return err_set(err, ERR_EXHAUSTED, "at most %u sandboxes", CLUSTER_SANDBOXES_MAX);
    struct sandbox_processes *sandbox = &cluster->sandboxes[cluster->sandbox_count++];
    if (name_files(cluster, name, sandbox, err) < 0 || token_for(cluster, name, err) < 0 ||
        make_daemons(cluster, sandbox, err) < 0)
        return -1;
    *ret = sandbox;
    return 0;
}

/* Clients. */

int cluster_login(struct cluster *cluster, const char *name, const char *role, const char *scope,
                  char ret[CLUSTER_PATH_MAX], struct err *err)
{
    char key[CLUSTER_PATH_MAX], file[64], config[CLUSTER_PATH_MAX + 32], endpoint[64], front[64];
    CLEANUP_RESULT struct proc_result result = { 0 };
    (void)snprintf(file, sizeof(file), "%s.login", name);
    if (join(key, cluster->dir, file, err) < 0 ||
        cluster_cli(cluster,
                    (const char *[]){ "client", "add", name, "--role", role, "--out", key,
                                      scope ? "--scope" : NULL, scope, NULL },
                    NULL, 0, PROC_DEADLINE_US, &result, err) < 0)
        return -1;
    if (result.status != 0)
        return err_set(err, ERR_INTERNAL, "client add failed with %d: %s", result.status,
                       result.err);
    (void)snprintf(config, sizeof(config), "XDG_CONFIG_HOME=%s", cluster->dir);
    endpoint_of(cluster, cluster->http_port, front, sizeof(front));
    cluster_endpoint(cluster, endpoint, sizeof(endpoint));
    (void)snprintf(file, sizeof(file), "sandstorm/contexts/%s/identity", name);
    if (join(ret, cluster->dir, file, err) < 0)
        return -1;
    return run_with((const char *[]){ cluster_program("sandstorm"), "login", endpoint, "--key-file",
                                      key, "--ca-fingerprint", cluster->fingerprint,
                                      "--enroll-endpoint", front, "--context", name, NULL },
                    (const char *[]){ config, NULL }, err);
}

int sandbox_start_runner(struct sandbox_processes *sandbox, struct err *err)
{
    if (service_start(sandbox->runner, err) < 0)
        return -1;
    return service_wait_ready(sandbox->runner, PROC_DEADLINE_US, err);
}

int sandbox_wait_online(struct sandbox_processes *sandbox, struct err *err)
{
    return service_wait_status(sandbox->link, "online as", PROC_DEADLINE_US, err);
}

int sandbox_start_link(struct sandbox_processes *sandbox, struct err *err)
{
    if (service_start(sandbox->link, err) < 0)
        return -1;
    return sandbox_wait_online(sandbox, err);
}

int cluster_start_sandbox(struct cluster *cluster, const char *name, struct sandbox_processes **ret,
                          struct err *err)
{
    struct sandbox_processes *sandbox;
    if (cluster_add_sandbox(cluster, name, &sandbox, err) < 0 ||
        sandbox_start_runner(sandbox, err) < 0 || sandbox_start_link(sandbox, err) < 0)
        return -1;
    *ret = sandbox;
    return 0;
}

/* The command line client. */

struct cli {
    const char *argv[CLI_ARGUMENTS_MAX + 2];
    const char *env[3];
    char endpoint[96], identity[160];
};

static int fill_cli(const struct cluster *cluster, const char *const *arguments, struct cli *ret,
                    struct err *err)
{
    unsigned count = 0;
    ret->argv[count++] = cluster_program("sandstorm");
    for (; *arguments; arguments++) {
        if (count > CLI_ARGUMENTS_MAX)
            return err_set(err, ERR_INVALID, "at most %u arguments", CLI_ARGUMENTS_MAX);
        ret->argv[count++] = *arguments;
    }
    ret->argv[count] = NULL;
    (void)snprintf(ret->endpoint, sizeof(ret->endpoint), "SANDSTORM_ENDPOINT=%s:%d", cluster->host,
                   cluster->port);
    (void)snprintf(ret->identity, sizeof(ret->identity), "SANDSTORM_IDENTITY=%s", cluster->admin);
    ret->env[0] = ret->endpoint;
    ret->env[1] = ret->identity;
    ret->env[2] = NULL;
    return 0;
}

int cluster_cli(const struct cluster *cluster, const char *const *arguments, const void *input,
                size_t input_size, uint64_t timeout_us, struct proc_result *ret, struct err *err)
{
    struct cli cli;
    if (fill_cli(cluster, arguments, &cli, err) < 0)
        return -1;
    const struct proc_spec spec = { .argv = cli.argv, .env = cli.env };
    return proc_run(&spec, input, input_size, timeout_us, ret, err);
}

int cluster_cli_start(const struct cluster *cluster, const char *const *arguments, int in, int out,
                      int errors, struct proc **ret, struct err *err)
{
    struct cli cli;
    if (fill_cli(cluster, arguments, &cli, err) < 0)
        return -1;
    const struct proc_spec spec = {
        .argv = cli.argv, .env = cli.env, .in = in, .out = out, .err = errors
    };
    return proc_start(&spec, ret, err);
}
