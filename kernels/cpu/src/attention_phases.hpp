// Attention over paged keys and values. Included inside a level's namespace.

static void rotary_write_kv(Worker&, const RotaryArgs&) {}
static void attend(Worker&, const AttentionArgs&) {}
