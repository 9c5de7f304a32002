package fleet

import (
	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// The function `inventory` reads what the server holds about each node for queries (ADR 0036).
func inventory(r *reader, n *yaml.Node) (out tutti.InventoryRules) {
	r.mapping(n, "inventory", fields{
		"facts":     func(n *yaml.Node) { out.Facts = r.isTrue(n, "inventory: facts") },
		"resources": func(n *yaml.Node) { out.Resources = r.isTrue(n, "inventory: resources") },
	})
	return out
}
