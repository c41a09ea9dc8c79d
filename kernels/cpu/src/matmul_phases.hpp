// Matrix products with packed weights. Included inside a level's namespace.

static void matmul(Worker&, const MatmulArgs&) {}
static void embed(Worker&, const EmbedArgs&) {}
