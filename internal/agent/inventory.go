package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
	"github.com/tutti-project/tutti/wire"
)

// The files of a run's directory that the server may hold for queries (ADR 0036). Puppet writes both.
const (
	heldFactsFile   = "facts-held.json"
	heldCatalogFile = "catalog-held.json"
)

// holdAgain is how long the agent waits after the server has not taken a part of the inventory.
const holdAgain = time.Minute

// wants is what the server said about the inventory in the answer to a claim.
type wants struct {
	parts map[tutti.InventoryPart]tutti.Digest // what the server has
	asked time.Time                            // when the agent sent the claim
}

// inventory sends the facts and the catalog of the node to the server. Only the loop that tells facts uses it.
type inventory struct {
	*Agent
	sent  map[tutti.InventoryPart]sentPart
	rests map[tutti.InventoryPart]time.Time // when the agent may send a part again
	said  string                            // the last error
	// catalog describes the catalog of the run in the directory catalogOf.
	catalog   tutti.Held
	catalogOf string
}

// sentPart is a state that the server has taken.
type sentPart struct {
	state tutti.Digest
	at    time.Time
}

// wantsOf returns what the server wants. It is nil if the server wants nothing.
func wantsOf(in *wire.WantedInventory, asked time.Time) *wants {
	if in == nil {
		return nil
	}
	return &wants{in.Parts, asked}
}

// The function `wantsCatalogs` reports whether the server wants the catalogs of runs.
func wantsCatalogs(wanted *wants) bool {
	if wanted == nil {
		return false
	}
	_, is := wanted.parts[tutti.InventoryCatalog]
	return is
}

// The method `tell` sends each part that the server wants and does not have. The argument facts describes the facts
// that were collected last for the run in dir.
func (i *inventory) tell(ctx context.Context, dir string, facts FactsNow, now time.Time) error {
	wanted := i.wanted.Load()
	if wanted == nil || i.knows().observed() != "" {
		return nil
	}
	var errs []error
	if _, is := wanted.parts[tutti.InventoryFacts]; is && facts.Facts != "" && hasFile(dir, sentFile) {
		held := tutti.Held{State: facts.Facts, At: facts.At.UTC(), Run: tutti.RunID(filepath.Base(dir))}
		errs = append(errs, i.send(ctx, tutti.InventoryFacts, wanted, dir, heldFactsFile, held, now))
	}
	if _, is := wanted.parts[tutti.InventoryCatalog]; is {
		if dir, err := i.lastCatalog(); err != nil || dir != "" {
			errs = append(errs, err, i.send(ctx, tutti.InventoryCatalog, wanted, dir, heldCatalogFile, i.catalog, now))
		}
	}
	return errors.Join(errs...)
}

// lastCatalog finds the last ordered run that has left its catalog, and whose result the server has. The directory is
// empty if there is no such run.
func (i *inventory) lastCatalog() (string, error) {
	dirs, err := i.runDirs()
	if err != nil {
		return "", err
	}
	for _, dir := range slices.Backward(dirs) {
		if !hasFile(dir, heldCatalogFile) || !hasFile(dir, sentFile) || hasFile(dir, LocalFile) {
			continue
		}
		if dir != i.catalogOf {
			state, err := excerpt.Digest(filepath.Join(dir, heldCatalogFile))
			if err != nil {
				return "", err
			}
			at := modified(filepath.Join(dir, heldCatalogFile)).UTC()
			i.catalogOf, i.catalog = dir, tutti.Held{State: state, At: at, Run: tutti.RunID(filepath.Base(dir))}
		}
		return dir, nil
	}
	return "", nil
}

// The method `send` sends one part, unless the server has it. An answer to a claim that the agent sent before it sent
// the part does not count.
func (i *inventory) send(ctx context.Context, part tutti.InventoryPart, wanted *wants, dir, name string, held tutti.Held, now time.Time) error {
	last := i.sent[part]
	if wanted.parts[part] == held.State || last.state == held.State && last.at.After(wanted.asked) || now.Before(i.rests[part]) {
		return nil
	}
	content, left, err := packed(filepath.Join(dir, name), part)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a collection of an earlier release of the module has left no facts
	}
	if err != nil {
		return fmt.Errorf("the %s for queries: %w", part, err)
	}
	if held.Left = left; left == "" {
		held.Blob = tutti.DigestOf(content)
	}
	if spec, err := i.opts.Runner.Spec(dir); err == nil {
		held.Environment = spec.Order.Environment
	}
	message, err := wire.EncodeInventory(wire.Inventory{Part: part, Held: held}, content)
	if err == nil {
		_, err = i.call(ctx, wire.OpInventory, message)
	}
	if err != nil {
		i.rests[part] = now.Add(holdAgain)
		return tutti.Wrap("", err, "the server does not take the %s for queries", part)
	}
	i.sent[part] = sentPart{held.State, time.Now()}
	return nil
}

// The function `packed` compresses a file that Puppet has written. The function keeps only the compressed content in
// memory. If the content is larger than the server takes, the result is the reason why the content is left out.
func packed(path string, part tutti.InventoryPart) (content []byte, left string, err error) {
	most, mostJSON := part.Most()
	file, err := excerpt.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	out := &bounded{most: int(most)}
	w := gzip.NewWriter(out)
	read, err := io.Copy(w, io.LimitReader(file, mostJSON+1))
	if err == nil {
		err = w.Close()
	}
	switch {
	case read > mostJSON:
		return nil, fmt.Sprintf("the node has more than %d MiB of %s", mostJSON>>20, part), nil
	case errors.Is(err, errFull):
		return nil, fmt.Sprintf("the node has more than %d MiB of compressed %s", most>>20, part), nil
	}
	return out.Bytes(), "", err
}

var errFull = errors.New("the content is too large")

// bounded is a buffer that takes at most this many bytes, and then returns errFull.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, errFull
	}
	return b.Buffer.Write(p)
}
