log_file("api", "api.log").
