package nodes

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `beat` notes that a node is alive. The method does not use the writer, because most messages of nodes
// are beats.
func (s *Nodes) beat(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.Beat](wire.OpBeat, payload)
	if err != nil {
		return nil, err
	}
	in.Version, in.Puppet, in.Trouble, in.Unnoted = plain.Words(in.Version), plain.Words(in.Puppet), plain.Words(in.Trouble), plain.Words(in.Unnoted)
	if f := in.Files; f != nil {
		f.Environment = plain.Words(f.Environment)
		if d := f.Disabled; d != nil {
			d.By, d.Message = plain.Words(d.By), plain.Words(d.Message)
		}
	}
	if s.Presence.Beat(key, in) {
		return nil, nil
	}
	return nil, s.do(ctx, func(tx *tx) error {
		_, err := tx.Node(key) // tx.Node returns why the beat is refused
		return err
	})
}

// The method `live` passes the live messages of a run to the run's watchers. The method does not use the writer
// either. If nobody watches the run, the method does not read the message.
func (s *Nodes) live(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	first, _, err := data.FirstOf[struct{ Run tutti.RunID }](wire.OpLive, payload, 1)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	run := first[0].Run
	node, job, ok := s.Presence.Running(key, run)
	if !ok {
		return nil, s.do(ctx, func(tx *tx) error {
			_, _, err := tx.nodeRun(key, run) // nodeRun returns why the message is refused
			return err
		})
	}
	if !s.Hub.Watched(job) {
		return nil, nil
	}
	in, err := elements[tutti.Live](wire.OpLive, payload, maxLive)
	if err != nil {
		return nil, err
	}
	for i := range in {
		in[i] = plain.Live(in[i])
		in[i].Node, in[i].Run = node, run
	}
	s.Hub.Publish(job, in)
	return nil, nil
}
