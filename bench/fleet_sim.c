/* sandstorm-fleet-sim: thousands of agents in one process, for tests and measurements of the
 * orchestrator. They enrol with one token, connect over mutual TLS, heartbeat and answer orders as
 * an agent with a runner does; only that nothing runs. This file has the options, the signals and
 * the order of things; next: bench/fleet_sim_enrol.c, then bench/fleet_sim_agent.c. */
#include "bench/fleet_sim.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/program.h"

#include <signal.h>
#include <string.h>

static const struct option options[] = {
    { "count", 'n', OPTION_UINT, "N", "How many agents, 100 if not given",
      offsetof(struct sim_config, count), 1, SIM_AGENTS_MAX },
    { "prefix", 0, OPTION_STRING, "TEXT", "What their ids begin with, sim- if not given",
      offsetof(struct sim_config, prefix), 0, 0 },
    { "endpoint", 'e', OPTION_STRING, "HOST:PORT", "The orchestrator",
      offsetof(struct sim_config, endpoint), 0, 0 },
    { "enroll-endpoint", 0, OPTION_STRING, "HOST:PORT", "Its HTTPS front",
      offsetof(struct sim_config, enroll_endpoint), 0, 0 },
    { "token-file", 't', OPTION_STRING, "FILE", "A join token with a use for each agent",
      offsetof(struct sim_config, token_file), 0, 0 },
    { "ca-fingerprint", 0, OPTION_STRING, "TEXT", "By which the orchestrator's CA is known",
      offsetof(struct sim_config, ca_fingerprint), 0, 0 },
    { "ca-file", 0, OPTION_STRING, "FILE", "The orchestrator's CA, instead of its fingerprint",
      offsetof(struct sim_config, ca_file), 0, 0 },
    { "dir", 'd', OPTION_STRING, "DIR", "Keep keys and certificates here, and use those of before",
      offsetof(struct sim_config, dir), 0, 0 },
    { "silent", 0, OPTION_UINT, "PERCENT",
      "How many fall silent at SIGUSR1, without closing their connection, until SIGUSR2",
      offsetof(struct sim_config, silent_percent), 0, 100 },
    { "flap", 0, OPTION_UINT, "N", "Cut so many streams each second",
      offsetof(struct sim_config, flap), 0, SIM_AGENTS_MAX },
    { "seconds", 's', OPTION_UINT, "N",
      "End so long after all are connected; without it, at SIGTERM",
      offsetof(struct sim_config, seconds), 1, 86400 },
    { "command-time", 0, OPTION_DURATION, "TIME", "How long a command takes, 100ms if not given",
      offsetof(struct sim_config, command_us), 0, 86400000000 },
    { "command-output", 0, OPTION_UINT, "BYTES", "What a command writes, 64 if not given",
      offsetof(struct sim_config, output), 0, SIM_OUTPUT_MAX },
    { "report", 0, OPTION_STRING, "FILE", "Write the figures to this file too, as JSON",
      offsetof(struct sim_config, report), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm token create --prefix sim- --uses 2000 --out sim.token",
    "A token for all of them",
    "sandstorm-fleet-sim -n 2000 -e 127.0.0.1:5000 --enroll-endpoint 127.0.0.1:5001 "
    "-t sim.token --ca-fingerprint sha256:...",
    "Two thousand agents, until SIGTERM; figures at the end",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm-fleet-sim",
    .section = 1,
    .summary = "simulate many agents",
    .usage = "[OPTION...]",
    .options = options,
    .examples = examples,
};

/* What happens in between. */

static void say_status(void *userdata)
{
    struct sim *sim = userdata;
    const uint64_t count = sim->config->count;
    if (sim->enrolled < count)
        daemon_status("enrolled %u of %llu", sim->enrolled, (unsigned long long)count);
    else
        daemon_status("online %u of %llu", sim->active, (unsigned long long)count);
}

void sim_changed(struct sim *sim)
{
    if (!sim->ready && sim->active == sim->config->count) {
        sim->ready = true;
        sim_report_begin(sim);
        daemon_ready("online %u of %u", sim->active, sim->active);
        if (sim->config->seconds)
            loop_timer_start(sim->end, sim->config->seconds * 1000000);
        if (sim->config->flap)
            loop_timer_start(sim->flap, 1000000);
    }
    /* Thousands change at once; one line tells it. */
    if (!loop_timer_running(sim->status))
        loop_timer_start(sim->status, SIM_STATUS_US);
}

void sim_quit_when_idle(struct sim *sim)
{
    if (sim->stopping && sim->calls == 0)
        loop_quit(sim->loop);
}

static void stop(void *userdata, bool hurry)
{
    struct sim *sim = userdata;
    (void)hurry; /* cancelled streams close at once */
    if (!sim->stopping && sim->ready && sim_report_end(sim, &sim->err) < 0)
        sim->failed = true;
    sim->stopping = true;
    for (uint64_t i = 0; i < sim->config->count; i++)
        sim_agent_cut(&sim->agents[i]);
    sim_quit_when_idle(sim);
}

static void on_end(void *userdata)
{
    stop(userdata, false);
}

void sim_fail(struct sim *sim, const struct err *err)
{
    if (!sim->failed)
        sim->err = *err;
    sim->failed = true;
    stop(sim, false);
}

static void on_flap(void *userdata)
{
    struct sim *sim = userdata;
    for (uint64_t i = 0; i < sim->config->flap; i++)
        sim_agent_cut(&sim->agents[random_u64() % sim->config->count]);
    loop_timer_start(sim->flap, 1000000);
}

static void on_silence(void *userdata, int number)
{
    struct sim *sim = userdata;
    uint64_t count = sim->config->count * sim->config->silent_percent / 100;
    for (uint64_t i = 0; i < count; i++)
        sim_agent_set_silent(&sim->agents[i], number == SIGUSR1);
    log_info(number == SIGUSR1 ? "silent" : "speaking again", LF_UINT("agents", count));
}

/* Life. */

static int check_config(struct sim_config *config, struct err *err)
{
    if (!config->endpoint || !config->enroll_endpoint)
        return err_set(err, ERR_INVALID, "give --endpoint and --enroll-endpoint");
    if (!config->token_file || (!config->ca_fingerprint && !config->ca_file))
        return err_set(err, ERR_INVALID, "give --token-file, and --ca-fingerprint or --ca-file");
    if (!config->count)
        config->count = 100;
    if (!config->prefix)
        config->prefix = "sim-";
    if (!config->command_us)
        config->command_us = 100000;
    if (!config->output)
        config->output = 64;
    return 0;
}

static int make_sim(struct sim *sim, struct err *err)
{
    sim->queue_last = &sim->queue_first;
    sim->figures.began_us = monotonic_us();
    sim->agents = calloc(sim->config->count, sizeof(*sim->agents));
    if (!sim->agents)
        return err_nomem(err);
    if (loop_new(&sim->loop, err) < 0 || daemon_new(sim->loop, stop, sim, &sim->daemon, err) < 0 ||
        loop_signal_new(sim->loop, SIGUSR1, on_silence, sim, &sim->silence, err) < 0 ||
        loop_signal_new(sim->loop, SIGUSR2, on_silence, sim, &sim->resume, err) < 0 ||
        loop_timer_new(sim->loop, say_status, sim, &sim->status, err) < 0 ||
        loop_timer_new(sim->loop, on_flap, sim, &sim->flap, err) < 0 ||
        loop_timer_new(sim->loop, on_end, sim, &sim->end, err) < 0 ||
        rpc_pump_new(sim->loop, &sim->pump, err) < 0)
        return -1;
    for (unsigned i = 0; i < sim->config->count; i++)
        if (sim_agent_init(sim, &sim->agents[i], i, err) < 0)
            return -1;
    return sim_enrol_start(sim, err);
}

static void free_sim(struct sim *sim)
{
    sim_enrol_done(sim);
    for (uint64_t i = 0; sim->agents && i < sim->config->count; i++)
        sim_agent_done(&sim->agents[i]);
    if (sim->pump)
        rpc_pump_free(sim->pump);
    loop_timer_free(sim->status);
    loop_timer_free(sim->flap);
    loop_timer_free(sim->end);
    loop_signal_free(sim->silence);
    loop_signal_free(sim->resume);
    daemon_free(sim->daemon);
    loop_free(sim->loop);
    free(sim->agents);
    free(sim->ca);
    free(sim->token);
}

static int simulate(const struct sim_config *config, struct err *err)
{
    static const int signals[] = { SIGUSR1, SIGUSR2 };
    struct sim sim = { .config = config };
    if (program_log(page.program, "info", "auto", err) < 0 || daemon_prepare(err) < 0 ||
        loop_signals_block(signals, ELEMENTS(signals), err) < 0 ||
        daemon_raise_files(config->count + SIM_FILES_SPARE, NULL, err) < 0)
        return -1;
    int r = make_sim(&sim, err);
    if (r == 0)
        r = loop_run(sim.loop, err);
    if (r == 0 && sim.failed) {
        *err = sim.err;
        r = -1;
    }
    free_sim(&sim);
    return r;
}

int main(int argc, char **argv)
{
    struct sim_config config = { 0 };
    struct err err = { 0 };
    bool done = false;
    int rest = 0;
    int r = program_parse(&page, argc, argv, &config, &done, &rest, &err);
    if (r == 0 && done)
        return 0;
    if (r == 0 && rest < argc)
        r = err_set(&err, ERR_INVALID, "\"%s\" is not expected here; see --help", argv[rest]);
    if (r == 0)
        r = check_config(&config, &err);
    if (r == 0)
        r = simulate(&config, &err);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
