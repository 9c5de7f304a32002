package core

const ActorOperator = "operator:"
