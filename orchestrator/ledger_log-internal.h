/* The inside of the ledger, for orchestrator/ledger_log*.c and its tests.
 *
 * DIR/ledger/NNNNNNNN.seg, the number in hexadecimal. A segment is a sequence of records, each a
 * header and, for output, the runs of one append. The first one says which numbers the file stands
 * for (emptying merges neighbours) and the salt of all others: their magic and the seed of their
 * checksums. So the search for the next record behind a damaged one cannot be led astray by what a
 * command prints.
 *
 * The order of records is the order of time; emptying keeps it. The index knows for each command
 * where runs of its records begin ("spots"), and a read walks the file from there. */
#pragma once

#include "orchestrator/ledger_log.h"

#include <pthread.h>
#include <sys/uio.h>

#define LEDGER_RECORD_HEADER   64u
#define LEDGER_SEGMENT_DEFAULT (16u * 1024 * 1024)
#define LEDGER_SEGMENT_MIN     (64u * 1024)
#define LEDGER_SEGMENT_MAX     (1024u * 1024 * 1024) /* positions are 32 bits */
#define LEDGER_TOTAL_SEGMENTS  4u                    /* total_max is at least so many */
#define LEDGER_BATCH_BYTES     (4u * 1024 * 1024)    /* of one fdatasync(2) */
#define LEDGER_BATCH_RECORDS   2048u
#define LEDGER_READS_TURN      16u                 /* between two batches */
#define LEDGER_READ_WALK       (16u * 1024 * 1024) /* of files looked at for one read */
#define LEDGER_WINDOW          (64u * 1024)        /* read at once where records follow on */
#define LEDGER_SPOT_BYTES      (64u * 1024)        /* of one command between two spots, at most */
#define LEDGER_SPOT_DISTANCE   (256u * 1024) /* of the file between two spots, at most, unless */
#define LEDGER_SPOT_SMALL      4096u         /* so few bytes of the command are there */
#define LEDGER_SPOTS_MAX       (4u << 20)    /* then the oldest segment goes: 128 MiB of memory */
/* Above this the oldest go; the rest up to LEDGER_COMMANDS_MAX is for what comes meanwhile. */
#define LEDGER_COMMANDS_ROOM (LEDGER_COMMANDS_MAX / 8 * 7)
#define LEDGER_SPARSE        8u        /* a segment with less than 1/8 alive is emptied */
#define LEDGER_MERGE_SMALL   4096u     /* a neighbour with so little is taken along */
#define LEDGER_PROBE_US      1000000u  /* between two looks whether the disk is well again */
#define LEDGER_LOOK_US       60000000u /* between two looks for what is too old, at most */

struct ledger_id {
    uint8_t bytes[16];
};

enum ledger_record_kind {
    LEDGER_RECORD_SEGMENT = 1, /* offset and end are the first and the last number it stands for */
    LEDGER_RECORD_OUTPUT = 2,
    LEDGER_RECORD_FORGET = 3, /* all of this command that is before it; offset is the number of the
                                 first segment that may hold some */
    LEDGER_RECORD_PROBE = 4,  /* nothing: whether the disk can be written */
};

struct ledger_record {
    enum ledger_record_kind kind;
    uint32_t size;     /* of the payload behind the header */
    uint32_t checksum; /* of the payload; of a segment: its salt */
    uint32_t batch;    /* where the records begin that were synced together with this one; of a
                          segment: `clean` */
    int64_t time_ms;
    uint64_t offset, end;
    struct ledger_id id;
};

/* ledger_log_record.c: bytes. Any thread. */
#define LEDGER_MAGIC 0x31474c53u /* of the first record: "SLG1", 1 being the version */
void ledger_record_pack(uint8_t out[LEDGER_RECORD_HEADER], uint32_t magic,
                        const struct ledger_record *record);
bool ledger_record_unpack(const uint8_t in[LEDGER_RECORD_HEADER], uint32_t magic,
                          struct ledger_record *ret) must_use;
void ledger_magic_bytes(uint32_t magic, uint8_t ret[4]);
uint32_t ledger_magic_of(const uint8_t in[4]);
struct ledger_id ledger_id_of(const struct command_id *id);
bool ledger_runs_cover(const uint8_t *runs, size_t size, uint64_t length) must_use;
/* Leaves what covers [skip, skip + length) of them; its size. */
size_t ledger_runs_cut(uint8_t *runs, size_t size, uint64_t skip, uint64_t length);

/* ledger_log_walk.c: the records of a file, one after another. */
struct ledger_walk {
    int fd;
    uint32_t salt;
    uint64_t size, at; /* of what counts of the file; where the next record should begin */
    uint64_t damaged;  /* bytes that were passed over */
    uint8_t *window;   /* LEDGER_WINDOW bytes, the caller's */
    uint64_t start;    /* of the window's bytes in the file */
    size_t used;
};
/* 1: *ret and where it begins; 0: no more; -1: cannot be read. */
int ledger_walk_next(struct ledger_walk *walk, struct ledger_record *ret, uint32_t *ret_at,
                     struct err *err) must_use;
/* pread(2) of all of it; 0 when the file is too short. */
int ledger_read_at(int fd, void *out, size_t size, uint64_t at) must_use;

/* Where records of a command begin that follow on in one segment: those behind it in the file, up
 * to `end`, have no spot of their own. */
struct ledger_spot {
    uint64_t offset, end;
    uint32_t segment, at;
    uint32_t bytes; /* on disk */
    bool damaged;   /* what is missing before it was damaged; else nobody wrote it */
};

/* Under the index's lock are what the loop asks for and changes: `next` while it is in the table,
 * first, end, accepted, epoch, pending, changed, forgotten. The rest is the ledger thread's. */
struct ledger_command {
    struct ledger_id id;
    struct ledger_command *next;           /* of the same bucket */
    struct ledger_command *changed_next;   /* of those that were trimmed or forgotten */
    struct ledger_command *beside, **back; /* of the same home */
    struct ledger_segment *home; /* the oldest that may hold records of it, alive or dead */
    uint64_t first, end;         /* kept and durable */
    uint64_t accepted;           /* the end of what waits */
    uint64_t epoch;              /* one more with each failure that was told */
    struct ledger_spot *spots;   /* from `start` to `count`; `only` while there is room in it */
    struct ledger_spot only;
    unsigned start, count, capacity;
    unsigned reserved;       /* of the capacity, for the batch under way */
    unsigned pending;        /* appends that are not done */
    uint64_t writing, batch; /* the end of what that batch of the log brings */
    uint32_t newest;         /* the last segment with a record of it */
    uint32_t mark;           /* of the emptying that has copied some of it last */
    size_t moved;            /* one more than its last entry there, while that is under way */
    bool changed, forgotten, written_off;
};

struct ledger_segment {
    uint32_t number, last; /* the numbers it stands for */
    uint32_t salt;
    uint64_t size;
    uint64_t live;        /* bytes of records that are still wanted, in whole spots */
    uint64_t forgets;     /* bytes of records that say what is forgotten */
    uint32_t forgot_from; /* the oldest segment that these are about */
    uint32_t clean; /* emptied when this one was the head: what those before it forget is gone */
    int64_t oldest_ms, newest_ms;
    struct ledger_command *commands; /* whose home it is */
};

struct ledger_index {
    pthread_mutex_t lock;
    struct ledger_command **buckets;
    size_t bucket_count; /* a power of two */
    uint64_t seeds[2];   /* ids are chosen by clients */
    unsigned command_count;
    struct ledger_command *changed;
    /* The ledger thread's. */
    struct ledger_segment **segments; /* by number; the last one may be the head */
    unsigned segment_count, segment_capacity;
    uint64_t command_max;
    size_t spots;
};

/* ledger_log_index.c: commands and segments. */
struct ledger_index *ledger_index_new(uint64_t command_max);
void ledger_index_free(struct ledger_index *index);
struct ledger_command *ledger_index_find(struct ledger_index *index, const struct ledger_id *id);
/* With the lock held. */
struct ledger_command *ledger_index_get(struct ledger_index *index, const struct ledger_id *id,
                                        struct err *err);
void ledger_index_remove(struct ledger_index *index, struct ledger_command *command);
void ledger_index_change(struct ledger_index *index, struct ledger_command *command);
/* With the lock held: a forgotten one needs no record any more. */
void ledger_index_written_off(struct ledger_index *index, struct ledger_command *command);
/* Out of the table already. */
void ledger_command_free(struct ledger_index *index, struct ledger_command *command);
/* With the lock held. Takes the changed ones: those that were trimmed lose their spots, those that
 * were forgotten are put on *forgotten. True when bytes are not wanted any more. */
bool ledger_index_settle(struct ledger_index *index, struct ledger_command **forgotten);
/* With the lock held: one append of it less. */
void ledger_index_release(struct ledger_index *index, struct ledger_command *command);
/* With the lock held: a record that is durable now. Room for a spot was reserved. */
void ledger_index_add(struct ledger_index *index, struct ledger_command *command,
                      struct ledger_segment *segment, uint32_t at,
                      const struct ledger_record *record, bool damaged);
int ledger_index_add_segment(struct ledger_index *index, const struct ledger_segment *segment,
                             struct ledger_segment **ret, struct err *err) must_use;
struct ledger_segment *ledger_index_segment(const struct ledger_index *index, uint32_t number);
/* The first one with this number or a higher one. */
unsigned ledger_index_position(const struct ledger_index *index, uint32_t number);
/* With the lock held. Takes `count` segments out and frees them; their commands lose what is there
 * and move on. Those that have the mark stay with `heir`, which may be NULL. */
void ledger_index_drop(struct ledger_index *index, unsigned position, unsigned count,
                       struct ledger_segment *heir, uint32_t mark);
/* With the lock held: all that lies in these segments is now at the end of the first one, where
 * nothing is. Looks at every command; for what could not be read. */
void ledger_index_lose_spots(struct ledger_index *index, uint32_t from, uint32_t to, uint32_t at);
/* Whether a segment from this number on, and before that position, may still hold something that a
 * record in segment `number` says is forgotten. */
bool ledger_index_reaches(const struct ledger_index *index, unsigned before, uint32_t from,
                          uint32_t number);

/* ledger_log_spots.c: the spots of a command. */
int ledger_spots_reserve(struct ledger_command *command, struct err *err) must_use;
void ledger_spots_add(struct ledger_index *index, struct ledger_command *command,
                      struct ledger_segment *segment, uint32_t at,
                      const struct ledger_record *record, bool damaged);
/* With the lock held: drops what is below `first`. True when some bytes are not wanted any more. */
bool ledger_spots_advance(struct ledger_index *index, struct ledger_command *command);
void ledger_spots_clear(struct ledger_index *index, struct ledger_command *command);
/* The first one that ends behind `offset`; `count` when there is none. */
unsigned ledger_spots_find(const struct ledger_command *command, uint64_t offset);
/* The spot that this record of a file belongs to; NULL when it is not wanted any more. */
struct ledger_spot *ledger_spots_of(const struct ledger_command *command, uint32_t segment,
                                    uint32_t at, const struct ledger_record *record);

struct ledger_log {
    struct loop *loop;
    char *path; /* DIR/ledger */
    int dir_fd;
    uint64_t total_max, segment_bytes;
    int64_t age_max_ms;
    int64_t opened_ms; /* the wall clock when it was opened, and the one that does not jump */
    uint64_t opened_us;
    struct ledger_index *index;
    atomic_uint_fast64_t bytes;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    struct ledger_append *first, **last;
    struct ledger_read *first_read, **last_read;
    uint64_t waiting; /* bytes of appends, until they are done */
    unsigned reads;
    struct ledger_append *returned, **last_returned; /* done, on their way to the loop */
    struct loop_post returned_post;
    bool returning; /* the loop runs their done() now */
    bool poked, stopping, failing;
    uint64_t busy_since_us; /* 0: nothing is being done */

    /* The thread's. */
    struct ledger_segment *head; /* of the index; NULL: the next batch makes one */
    int head_fd;
    bool torn;      /* the head has bytes that must be cut off before anything else */
    bool abandoned; /* the head's last sync failed: nothing is written to it any more */
    uint64_t batches;
    struct err why;                   /* of the last one */
    struct ledger_command *forgotten; /* not written down yet */
    bool untidy;
    uint64_t tidy_after_us; /* emptying failed */
    uint32_t mark;
    uint8_t *window;                          /* LEDGER_WINDOW */
    uint8_t (*headers)[LEDGER_RECORD_HEADER]; /* IOV_MAX, of a batch on its way */
};

/* ledger_log_thread.c */
int ledger_thread_start(struct ledger_log *log, struct err *err) must_use;
/* Does all that waits, and joins it. */
void ledger_thread_stop(struct ledger_log *log);

/* ledger_log_dir.c: names and files. */
#define LEDGER_NAME_MAX 16
int ledger_dir_open(struct ledger_log *log, const char *dir, struct err *err) must_use;
/* Segments by number; what an emptying left behind is removed. */
int ledger_dir_list(struct ledger_log *log, uint32_t **ret, unsigned *ret_count,
                    struct err *err) must_use;
void ledger_segment_name(uint32_t number, char ret[LEDGER_NAME_MAX]);
int ledger_segment_open(const struct ledger_log *log, uint32_t number, int flags, int *ret_fd,
                        uint64_t *ret_size, struct err *err) must_use;
int ledger_segment_make(const struct ledger_log *log, const char *name, int *ret_fd,
                        struct err *err) must_use;
int ledger_segment_remove(const struct ledger_log *log, uint32_t number, struct err *err) must_use;
int ledger_dir_sync(const struct ledger_log *log, struct err *err) must_use;

/* ledger_log_scan.c: the start. */
int ledger_scan(struct ledger_log *log, struct err *err) must_use;

/* ledger_log_write.c: what is forgotten, then the appends, and one sync. */
int ledger_write(struct ledger_log *log, struct ledger_append *appends, struct err *err) must_use;
int ledger_write_probe(struct ledger_log *log, struct err *err) must_use;
void ledger_head_close(struct ledger_log *log);
void ledger_note_time(struct ledger_segment *segment, int64_t time_ms);

/* ledger_log_read.c */
void ledger_read_serve(struct ledger_log *log, struct ledger_read *read);

/* ledger_log_retain.c: the limits. */
int ledger_make_room(struct ledger_log *log, uint64_t size, struct err *err) must_use;
/* One step; true when there may be another. */
bool ledger_tidy(struct ledger_log *log);
bool ledger_segment_too_old(const struct ledger_log *log, const struct ledger_segment *segment);
bool ledger_head_is_old(const struct ledger_log *log);

/* ledger_log_empty.c: rewrites a segment, and its neighbours where they are small, without what is
 * not wanted any more. */
int ledger_empty(struct ledger_log *log, unsigned position, struct err *err) must_use;
