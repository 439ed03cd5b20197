// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"strings"
)

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
