/* What the integration tests share: a running cluster with one sandbox, "box", for each case, and
 * the short words to use it with. A step that fails ends the case with its reason. When a case has
 * failed, the logs of all its daemons are printed after it. Criterion; one thread. */
#pragma once

#include "tests/harness/cluster.h"

#include <criterion/criterion.h>

#define BOX "box"

/* Give these to TestSuite() as .init and .fini. */
void fixture_start(void);
void fixture_stop(void);
/* Only a directory and an orchestrator. */
void fixture_start_empty(void);
/* The same two with these settings of the orchestrator, for an .init of the suite's own. */
void fixture_start_with(const char *settings);
void fixture_start_empty_with(const char *settings);

/* Only an orchestrator, with all of a cluster's configuration but the directory. */
void fixture_start_cluster(struct cluster_config config);

struct cluster *fixture(void);
struct sandbox_processes *fixture_box(void);
struct sandbox_processes *fixture_add(const char *name);

/* The client to its end: CLI("exec", BOX, "--", "true"). */
#define CLI(...) fixture_cli((const char *[]){ __VA_ARGS__, NULL }, NULL, 0)
#define CLI_INPUT(input, size, ...)                                                                \
    fixture_cli((const char *[]){ __VA_ARGS__, NULL }, (input), (size))
struct proc_result fixture_cli(const char *const *arguments, const void *input, size_t size);

/* Any program to its end, on top of our environment: RUN(NULL, cluster_program("x"), "--help"). */
#define RUN(env, ...) fixture_run((const char *[]){ __VA_ARGS__, NULL }, (env))
struct proc_result fixture_run(const char *const *argv, const char *const *env);

/* The client in the background, with pipes; a stream that is not asked for is /dev/null. */
struct fixture_client {
    struct proc *proc;
    int in, out, err; /* our ends, or -1 */
};
enum { PIPE_IN = 1, PIPE_OUT = 2, PIPE_ERR = 4 };
#define CLI_START(pipes, ...) fixture_cli_start((pipes), (const char *[]){ __VA_ARGS__, NULL })
struct fixture_client fixture_cli_start(unsigned pipes, const char *const *arguments);
void fixture_client_done(struct fixture_client *client);
#define CLEANUP_CLIENT CLEANUP(fixture_client_done)
/* Until it has ended; the status as a shell has it. */
int fixture_client_wait(struct fixture_client *client);

/* The next line of a pipe without its newline; ends the case at the deadline or at end of file. */
void fixture_read_line(int fd, char *out, size_t size);
/* Everything up to the end of file. */
char *fixture_read_all(int fd, size_t *ret_size);
/* Until the file exists. */
void fixture_wait_file(const char *path);
/* Until the clock of the day has passed that second. */
void fixture_wait_time(int64_t unix_s);
/* Until a process has ended; any process, not only ours. */
void fixture_wait_gone(pid_t pid);
/* A path in the case's own directory; the result is static. */
const char *fixture_path(const char *name);
/* Makes an empty file of that name there. */
void fixture_touch(const char *name);
void fixture_assert_contains(const char *text, const char *wanted);
/* How often `text` is in the file; 0 when there is no such file. */
unsigned fixture_count_text(const char *path, const char *text);
/* How many rows of the audit, as JSON, have all these texts in them. */
#define AUDIT_COUNT(...) fixture_count_audit((const char *[]){ __VA_ARGS__, NULL })
unsigned fixture_count_audit(const char *const *texts);
/* 0 when there is no such file. */
unsigned fixture_count_lines(const char *path);

/* Ends the case with the error's text when the call, which takes `err`, returns -1. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        struct err err_, *err = &err_;                                                             \
        int must_ = (call);                                                                        \
        cr_assert(must_ == 0, "%s", must_ < 0 ? err_.text : "");                                   \
    } while (0)
