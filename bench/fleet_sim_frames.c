/* What a simulated link says by itself: its registration, and heartbeats with the numbers that a
 * small VM would have. Every field is set, so that a message is as large as a real one. Called by
 * bench/fleet_sim_agent.c, which sends them. */
#include "bench/fleet_sim.h"

#include "common/clock.h"
#include "common/version.h"

#define PROTOCOL 1u
#define GIB      (1024ull * 1024 * 1024)

static uint64_t between(uint64_t low, uint64_t high)
{
    return low + random_u64() % (high - low + 1);
}

void sim_send_register(struct sim_agent *agent)
{
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    info.vm_id = agent->name;
    info.hostname = agent->name;
    info.kernel = (char *)"Linux 6.1.0-18-cloud-amd64";
    info.os = (char *)"Debian GNU/Linux 12 (bookworm)";
    info.arch = (char *)"x86_64";
    info.boot_id = agent->instance;
    info.agent_version = (char *)SANDSTORM_VERSION;
    info.runner_version = (char *)SANDSTORM_VERSION;
    Sandstorm__V1__Register message = SANDSTORM__V1__REGISTER__INIT;
    message.protocol_min = message.protocol_max = PROTOCOL;
    message.info = &info;
    message.sent_unix_ms = wall_ms();
    message.link_instance = agent->instance;
    message.link_uptime_ms = (monotonic_us() - agent->sim->figures.began_us) / 1000;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &message;
    sim_agent_send(agent, &frame);
}

static void fill_metrics(const struct sim_agent *agent, Sandstorm__V1__Metrics *metrics,
                         Sandstorm__V1__Pressure *pressure)
{
    metrics->cpu_basis_points = (uint32_t)between(50, 6000);
    metrics->cpus = 2;
    metrics->load1_centi = (uint32_t)between(1, 180);
    metrics->memory_total_bytes = 4 * GIB;
    metrics->memory_available_bytes = between(GIB, 3 * GIB);
    metrics->disk_total_bytes = 20 * GIB;
    metrics->disk_free_bytes = between(5 * GIB, 15 * GIB);
    metrics->processes = (uint32_t)between(80, 140);
    metrics->commands_running = sim_commands_running(agent);
    metrics->spool_bytes = between(0, 4096);
    metrics->uptime_s = monotonic_us() / 1000000;
    metrics->network_received_bytes = between(GIB, 2 * GIB);
    metrics->network_sent_bytes = between(GIB / 2, GIB);
    pressure->cpu_some = (uint32_t)between(0, 500);
    pressure->memory_some = (uint32_t)between(0, 50);
    pressure->memory_full = (uint32_t)between(0, 50);
    pressure->io_some = (uint32_t)between(0, 300);
    pressure->io_full = (uint32_t)between(0, 200);
    metrics->pressure = pressure;
}

void sim_send_heartbeat(struct sim_agent *agent)
{
    Sandstorm__V1__Pressure pressure = SANDSTORM__V1__PRESSURE__INIT;
    Sandstorm__V1__Metrics metrics = SANDSTORM__V1__METRICS__INIT;
    fill_metrics(agent, &metrics, &pressure);
    Sandstorm__V1__Heartbeat heartbeat = SANDSTORM__V1__HEARTBEAT__INIT;
    heartbeat.sequence = ++agent->sequence;
    heartbeat.sent_unix_ms = wall_ms();
    heartbeat.metrics = &metrics;
    heartbeat.runner_connected = true;
    heartbeat.clock_skew_ms = agent->clock_skew_ms;
    heartbeat.certificate_not_after_unix_ms = agent->not_after_ms;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_HEARTBEAT;
    frame.heartbeat = &heartbeat;
    sim_agent_send(agent, &frame);
}
