// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// The program docs writes the parts of documents that follow from rows in code: each between two comments that name it.
package main

import (
	"fmt"
	"go/ast"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

//go:generate go run . ../..

// section is a part of a document. Its text is Markdown, a table in most cases.
type section struct {
	// document is the path from the root of the repository. name is unique in it.
	document, name string
	// source is the path of the rows.
	source string
	text   func() (string, error)
}

var sections = []section{
	{"docs/policy.md", "waiting reasons", "api/v1alpha1/dispatch_placed.go", waitingReasons},
	{"docs/policy.md", "kinds of waiting reasons", "api/v1alpha1/dispatch_placed.go", reasonKinds},
	{"docs/policy.md", "objections", "dispatch/filter.go", objections},
	{"docs/failures.md", "outcomes", "dispatch/record/outcomes.go", outcomes},
	{"docs/design.md", "states", "dispatch/record/state.go and transitions.go", states},
	{"docs/policy.md", "fields of a DispatchPolicy", "api/v1alpha1/dispatchpolicy_types.go",
		fieldsOf("dispatchpolicies", v1alpha1.DispatchPolicySpec{})},
	{"docs/policy.md", "fields of a WorkerCluster", "api/v1alpha1/workercluster_types.go",
		fieldsOf("workerclusters", v1alpha1.WorkerClusterSpec{})},
	{"docs/kubectl.md", "commands", commandsDirectory, commands},
	metrics(waitingMetrics),
	metrics(jobMetrics),
	metrics(workerMetrics),
	metrics(agentMetrics),
	{"docs/metrics.md", "dashboards", dashboardTable, dashboards},
	{"docs/policy.md", "scores", "dispatch/score.go", scores},
	{"docs/install.md", "accelerators", "dispatch/accelerators/rows.go", acceleratorRows},
	{"docs/install.md", "releases", releaseResults, releases},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: docs ROOT")
	}
	for i := range sections {
		if err := write(os.Args[1], &sections[i]); err != nil {
			log.Fatalf("docs: %s of %s: %v", sections[i].name, sections[i].document, err)
		}
	}
}

// write replaces the text of a section. The file is not written if the text is there already.
func write(root string, s *section) error {
	path := filepath.Join(root, s.document)
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s: make generate writes it from %s -->\n", s.name, s.source), fmt.Sprintf("<!-- end of %s -->\n", s.name)
	head, rest, found := strings.Cut(string(before), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("the document needs the lines %q and %q", begin, end)
	}
	after := head + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + tail
	if after == string(before) {
		return nil
	}
	return os.WriteFile(path, []byte(after), 0o644)
}

// table formats rows as a Markdown table. The first row is the heading.
func table(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

const commandsDirectory = "cmd/kubectl-trainyard/internal/commands"

// commands makes the table of the plugin's commands, in the order in which newRoot adds them. What it says is what they
// say about themselves in --help.
func commands() (string, error) {
	files, err := parsed(commandsDirectory)
	made := map[string]map[string]ast.Expr{} // The fields of each command, by the function that makes it.
	var order []string
	for _, file := range files {
		for _, declared := range file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.CompositeLit:
					if selected(node.Type, "cobra") == "Command" {
						made[function.Name.Name] = fieldsIn(node)
					}
				case *ast.CallExpr:
					if function.Name.Name == "newRoot" && selected(node.Fun, "root") == "AddCommand" {
						order = append(order, called(node.Args)...)
					}
				}
				return true
			})
		}
	}
	rows := [][]string{{"command", "what it does"}}
	for _, name := range order {
		use, _, _ := strings.Cut(text(made[name]["Use"]), " ")
		command := "`" + use + "`"
		for _, alias := range texts(made[name]["Aliases"]) {
			command += ", also `" + alias + "`"
		}
		rows = append(rows, []string{command, text(made[name]["Short"])})
	}
	return table(rows), err
}

// called are the names of the functions that are called.
func called(calls []ast.Expr) []string {
	var names []string
	for _, e := range calls {
		if call, ok := e.(*ast.CallExpr); ok {
			if name, ok := call.Fun.(*ast.Ident); ok {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
