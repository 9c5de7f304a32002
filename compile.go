package tutti

// Compile says that the Puppet Server of the sending node compiles a catalog for a
// node. It takes the grant `compile`.
type Compile struct {
	Run RunID    `json:"run"` // the transaction's uuid; of no run of ours if others started it
	For NodeName `json:"for"`
}

// Compiling is the answer.
type Compiling struct {
	// Node: For is a node of the fleet. If it is not, nothing is answered for it.
	Node bool `json:"node"`
	// Recorded: it is a run of ours, which cannot go on without a CompiledFor.
	Recorded bool `json:"recorded"`
}

// CompiledFor is what such a compile read and exports, sent before the node gets
// its catalog, or what it waits for. The latest one before the run's gate counts.
type CompiledFor struct {
	For NodeName `json:"for"`
	Gate
	Waits []Wait `json:"waits,omitempty"`
	// Failed: there is no catalog.
	Failed bool `json:"failed,omitempty"`
}

// Served is what a Puppet Server handed over of a run, besides what was asked.
type Served struct {
	By    NodeName `json:"by"`            // the compile host
	Set   Digest   `json:"set,omitempty"` // of the exports, empty: none
	Count int      `json:"count,omitempty"`
	Waits []Wait   `json:"waits,omitempty"`
	// Failed: there is no catalog; if it waits, that is why.
	Failed bool `json:"failed,omitempty"`
}
