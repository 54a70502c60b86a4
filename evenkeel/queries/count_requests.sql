SELECT count() AS requests FROM requests
