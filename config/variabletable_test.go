package config

import (
	"fmt"
	"strings"
)

// The lines between which docs/reference/variables.md holds variableTable.
const (
	tableBegin = "<!-- variables:begin -->"
	tableEnd   = "<!-- variables:end -->"
)

// variableTable returns the Markdown table of all variables, for the documentation.
func variableTable() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, v := range Variables() {
		value := "–"
		if v.Default != "" {
			value = "`" + v.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, value, v.Meaning)
	}
	return b.String()
}
