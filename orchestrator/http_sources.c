/* The table behind http_sources.h: a fixed array with a hash over it. An entry lives while its
 * source has connections or a penalty. Owned by the HTTP front, which tells it of connections and
 * failures and asks it before it listens to anybody (next: orchestrator/http_front.c). */
#include "orchestrator/http_sources.h"

#include <assert.h>
#include <string.h>

#define BUCKETS     1024u /* a power of two */
#define NO_ENTRY    UINT16_MAX
#define PREFIX_LEN  8u /* of IPv6: a /64 is one customer */
#define MAPPED_LEN  12u
#define KEY_LEN     9u
#define HASH_FACTOR 0x9e3779b97f4a7c15u

struct entry {
    uint8_t key[KEY_LEN]; /* the family, then the address */
    bool refused;         /* passed the threshold; until the penalty has run off */
    uint16_t next;        /* in the bucket, or in the list of free entries */
    unsigned open;
    uint64_t until_us; /* the end of the penalty */
};

struct http_sources {
    struct entry entries[SOURCES_MAX];
    uint16_t buckets[BUCKETS];
    uint16_t free;
};

_Static_assert(SOURCES_MAX < NO_ENTRY, "an index must fit");

int http_sources_new(struct http_sources **ret, struct err *err)
{
    struct http_sources *sources = calloc(1, sizeof(*sources));
    if (!sources)
        return err_nomem(err);
    for (unsigned i = 0; i < BUCKETS; i++)
        sources->buckets[i] = NO_ENTRY;
    for (unsigned i = 0; i < SOURCES_MAX; i++)
        sources->entries[i].next = (uint16_t)(i + 1 < SOURCES_MAX ? i + 1 : NO_ENTRY);
    *ret = sources;
    return 0;
}

void http_sources_free(struct http_sources *sources)
{
    free(sources);
}

static void make_key(const struct sockaddr *source, uint8_t key[KEY_LEN])
{
    (void)memset(key, 0, KEY_LEN);
    key[0] = (uint8_t)source->sa_family;
    if (source->sa_family == AF_INET) {
        struct sockaddr_in in;
        (void)memcpy(&in, source, sizeof(in));
        (void)memcpy(key + 1, &in.sin_addr, sizeof(in.sin_addr));
    } else if (source->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        (void)memcpy(&in6, source, sizeof(in6));
        if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
            key[0] = AF_INET;
            (void)memcpy(key + 1, in6.sin6_addr.s6_addr + MAPPED_LEN, sizeof(struct in_addr));
        } else {
            (void)memcpy(key + 1, in6.sin6_addr.s6_addr, PREFIX_LEN);
        }
    }
}

/* Not keyed: whoever makes addresses collide can only make us walk the table, which is small. */
static uint16_t *bucket_of(struct http_sources *sources, const uint8_t key[KEY_LEN])
{
    uint64_t address;
    (void)memcpy(&address, key + 1, sizeof(address));
    return &sources->buckets[((address ^ key[0]) * HASH_FACTOR >> 32) & (BUCKETS - 1)];
}

static struct entry *find(struct http_sources *sources, const uint8_t key[KEY_LEN])
{
    for (uint16_t i = *bucket_of(sources, key); i != NO_ENTRY; i = sources->entries[i].next)
        if (memcmp(sources->entries[i].key, key, KEY_LEN) == 0)
            return &sources->entries[i];
    return NULL;
}

static uint64_t left_us(const struct entry *entry, uint64_t now_us)
{
    return entry->until_us > now_us ? entry->until_us - now_us : 0;
}

static void forget(struct http_sources *sources, struct entry *entry)
{
    uint16_t index = (uint16_t)(entry - sources->entries);
    uint16_t *link = bucket_of(sources, entry->key);
    while (*link != index)
        link = &sources->entries[*link].next;
    *link = entry->next;
    *entry = (struct entry){ .next = sources->free };
    sources->free = index;
}

/* Entries of sources that have connections are in use and stay. */
static void make_room(struct http_sources *sources, uint64_t now_us)
{
    struct entry *least = NULL;
    for (unsigned i = 0; i < SOURCES_MAX; i++) {
        struct entry *entry = &sources->entries[i];
        if (entry->open == 0 && (!least || left_us(entry, now_us) < left_us(least, now_us)))
            least = entry;
    }
    if (least)
        forget(sources, least);
}

static struct entry *find_or_add(struct http_sources *sources, const struct sockaddr *source,
                                 uint64_t now_us)
{
    uint8_t key[KEY_LEN];
    make_key(source, key);
    struct entry *entry = find(sources, key);
    if (entry)
        return entry;
    if (sources->free == NO_ENTRY)
        make_room(sources, now_us);
    if (sources->free == NO_ENTRY)
        return NULL;
    uint16_t index = sources->free;
    entry = &sources->entries[index];
    sources->free = entry->next;
    uint16_t *bucket = bucket_of(sources, key);
    *entry = (struct entry){ .next = *bucket };
    (void)memcpy(entry->key, key, KEY_LEN);
    *bucket = index;
    return entry;
}

/* Forgets the source when nothing is held against it any more; true when it is gone. */
static bool settle(struct http_sources *sources, struct entry *entry, uint64_t now_us)
{
    if (left_us(entry, now_us) > 0)
        return false;
    entry->refused = false;
    if (entry->open > 0)
        return false;
    forget(sources, entry);
    return true;
}

uint64_t http_sources_wait_us(struct http_sources *sources, const struct sockaddr *source,
                              uint64_t now_us)
{
    uint8_t key[KEY_LEN];
    make_key(source, key);
    struct entry *entry = find(sources, key);
    if (!entry || settle(sources, entry, now_us))
        return 0;
    return entry->refused ? left_us(entry, now_us) : 0;
}

void http_sources_blame(struct http_sources *sources, const struct sockaddr *source,
                        uint64_t penalty_us, uint64_t now_us)
{
    struct entry *entry = find_or_add(sources, source, now_us);
    if (!entry)
        return;
    uint64_t left = left_us(entry, now_us);
    if (left == 0)
        entry->refused = false;
    left += MIN(penalty_us, SOURCES_PENALTY_MAX_US);
    left = MIN(left, SOURCES_PENALTY_MAX_US);
    entry->until_us = now_us + left;
    if (left >= SOURCES_THRESHOLD_US)
        entry->refused = true;
}

bool http_sources_enter(struct http_sources *sources, const struct sockaddr *source, unsigned max,
                        uint64_t now_us)
{
    struct entry *entry = find_or_add(sources, source, now_us);
    if (!entry)
        return false;
    if (entry->open < max) {
        entry->open++;
        return true;
    }
    /* With max 0 the entry may be new and hold nothing. */
    (void)settle(sources, entry, now_us);
    return false;
}

void http_sources_leave(struct http_sources *sources, const struct sockaddr *source,
                        uint64_t now_us)
{
    uint8_t key[KEY_LEN];
    make_key(source, key);
    struct entry *entry = find(sources, key);
    assert(entry && entry->open > 0);
    entry->open--;
    (void)settle(sources, entry, now_us);
}
