/* Keys and certificates for the simulated agents. A few workers ask the orchestrator's HTTPS front,
 * each for one agent at a time; with --dir, what an earlier run got is used again. Every agent that
 * has its certificate goes to bench/fleet_sim_agent.c. */
#include "bench/fleet_sim.h"

#include "common/clock.h"
#include "common/csr.h"
#include "common/file.h"
#include "common/front_client.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define KEY_MARK     "-----BEGIN PRIVATE KEY-----"
#define ATTEMPTS_MAX 5u

/* Files: certificate and key in one, NAME.pem. Not synced: losing one costs an enrolment. */

static void file_of(const struct sim_agent *agent, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s.pem", agent->sim->config->dir, agent->name);
}

static bool load(struct sim_agent *agent)
{
    char path[512];
    CLEANUP_FREE char *text = NULL;
    size_t size;
    struct err ignored;
    if (!agent->sim->config->dir)
        return false;
    file_of(agent, path, sizeof(path));
    if (file_read(path, PEM_MAX, &text, &size, &ignored) < 0)
        return false;
    char *key = strstr(text, KEY_MARK);
    if (!key || !(agent->key = strdup(key)))
        return false;
    *key = '\0';
    agent->cert = TAKE_PTR(text);
    return true;
}

static int save(const struct sim_agent *agent, struct err *err)
{
    char path[512];
    if (!agent->sim->config->dir)
        return 0;
    file_of(agent, path, sizeof(path));
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || dprintf(fd, "%s%s", agent->cert, agent->key) < 0)
        return err_errno(err, errno, "cannot write %s", path);
    return 0;
}

/* On a worker's thread: touches its agent alone, and what nobody changes any more. */

static int ask(struct sim_agent *agent, struct front_certificate *answer, struct err *err)
{
    const struct sim *sim = agent->sim;
    CLEANUP_FREE char *csr = NULL;
    if (csr_key_new(&agent->key, err) < 0 || csr_new(agent->key, &csr, err) < 0)
        return -1;
    const struct front_enrolment enrolment = { .token = sim->token,
                                               .csr = csr,
                                               .sandbox_id = agent->name,
                                               .vm_id = agent->name,
                                               .hostname = agent->name };
    for (unsigned attempt = 0;; attempt++) {
        if (front_enroll(sim->config->enroll_endpoint, sim->ca, &enrolment, FRONT_TIMEOUT_MS,
                         answer, err) == 0)
            return 0;
        if (attempt == ATTEMPTS_MAX || (err->code != ERR_UNAVAILABLE && err->code != ERR_EXHAUSTED))
            return err_wrap(err, "%s cannot enrol", agent->name);
    }
}

static void enrol_work(struct worker_job *job)
{
    struct sim_enroller *enroller = CONTAINER_OF(job, struct sim_enroller, job);
    struct sim_agent *agent = enroller->agent;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
    if (load(agent))
        return;
    enroller->result = ask(agent, &answer, &enroller->err);
    if (enroller->result < 0)
        return;
    agent->cert = TAKE_PTR(answer.certificate);
    agent->not_after_ms = answer.not_after_ms;
    enroller->result = save(agent, &enroller->err);
}

static void enrol_next(struct sim_enroller *enroller);

static void enrol_returned(struct worker_job *job)
{
    struct sim_enroller *enroller = CONTAINER_OF(job, struct sim_enroller, job);
    struct sim *sim = enroller->sim;
    if (enroller->result < 0 && !sim->stopping) {
        sim_fail(sim, &enroller->err);
        return;
    }
    sim->enrolled++;
    if (sim->enrolled == sim->config->count)
        sim->figures.enrolled_us = monotonic_us();
    sim_changed(sim);
    if (sim->stopping)
        return;
    sim_agent_begin(enroller->agent);
    enrol_next(enroller);
}

static void enrol_next(struct sim_enroller *enroller)
{
    struct sim *sim = enroller->sim;
    struct err err;
    if (sim->stopping || sim->next_to_enrol == sim->config->count)
        return;
    enroller->agent = &sim->agents[sim->next_to_enrol++];
    enroller->result = 0;
    enroller->job.work = enrol_work;
    enroller->job.done = enrol_returned;
    if (worker_submit(enroller->worker, &enroller->job, &err) < 0)
        sim_fail(sim, &err);
}

static int read_ca(struct sim *sim, struct err *err)
{
    const struct sim_config *config = sim->config;
    size_t size;
    if (config->ca_file)
        return file_read(config->ca_file, PEM_MAX, &sim->ca, &size, err);
    char fingerprint[FRONT_FINGERPRINT_LEN + 1];
    if (front_fingerprint_parse(config->ca_fingerprint, fingerprint, err) < 0)
        return -1;
    return front_fetch_ca(config->enroll_endpoint, fingerprint, FRONT_TIMEOUT_MS, &sim->ca, err);
}

int sim_enrol_start(struct sim *sim, struct err *err)
{
    size_t size;
    if (file_read(sim->config->token_file, SIM_TOKEN_FILE_MAX, &sim->token, &size, err) < 0 ||
        read_ca(sim, err) < 0 ||
        (sim->config->dir && file_make_dirs(sim->config->dir, 0755, err) < 0))
        return -1;
    sim->token[strcspn(sim->token, "\n")] = '\0';
    for (unsigned i = 0; i < SIM_ENROLLERS; i++) {
        sim->enrollers[i].sim = sim;
        if (worker_new(sim->loop, "enrol", &sim->enrollers[i].worker, err) < 0)
            return -1;
    }
    for (unsigned i = 0; i < SIM_ENROLLERS; i++)
        enrol_next(&sim->enrollers[i]);
    return 0;
}

void sim_enrol_done(struct sim *sim)
{
    sim->stopping = true;
    for (unsigned i = 0; i < SIM_ENROLLERS; i++)
        worker_free(sim->enrollers[i].worker);
}
