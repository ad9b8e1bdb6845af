"""What explains the app in the app: the steps of the guided tour, the facts they tell, and the panel they stand in."""
