package rows

// Only every TileHeight-th level of the tree is stored. Level 0, the hashes of records, is in
// evidence already. A hash between two stored levels is computed from hashes of the lower one
// in one tile: TileWidth adjacent hashes, which are read together.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight
)
